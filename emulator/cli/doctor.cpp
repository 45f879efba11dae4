// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause

/// `softhca doctor`: what this machine, container or account lacks, what that costs, and how to
/// get it.

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include "emulator/cli/commands.h"
#include "emulator/cli/fabric_access.h"
#include "emulator/runtime/paths.h"
#include "emulator/runtime/spawn.h"
#include "emulator/runtime/unique_fd.h"

namespace softhca::cli {
namespace {

using runtime::UniqueFd;

enum class Verdict {
  good,
  note,     ///< Works, but slower or with less.
  problem,  ///< Softhca does not work without it.
};

struct Finding {
  Verdict verdict = Verdict::good;
  std::string subject;
  std::string seen;
  std::string cost;    ///< What its lack costs; empty if nothing lacks.
  std::string remedy;  ///< How to get it.
};

Finding good(std::string subject, std::string seen) {
  return {Verdict::good, std::move(subject), std::move(seen), {}, {}};
}

/// First line of a small file, or empty.
std::string first_line(const char* path) {
  std::ifstream stream(path);
  std::string line;
  std::getline(stream, line);
  return line;
}

std::string bytes_text(rlim_t value) {
  if (value == RLIM_INFINITY) return "unlimited";
  if (value >= 1U << 20) return std::to_string(value >> 20) + " MiB";
  return std::to_string(value >> 10) + " KiB";
}

bool is_in_path(const char* program) {
  const char* variable = std::getenv("PATH");
  std::string path = variable != nullptr ? variable : "/bin:/usr/bin";
  for (std::size_t begin = 0; begin <= path.size();) {
    const auto end = std::min(path.find(':', begin), path.size());
    if (::access((path.substr(begin, end - begin) + "/" + program).c_str(), X_OK) == 0) return true;
    begin = end + 1;
  }
  return false;
}

// ---- Our own files ----

Finding check_runtime_folder() {
  const std::string root = runtime::root_folder();
  if (auto made = runtime::make_private_folder(root); !made) {
    return {Verdict::problem, "runtime folder", made.error().message,
            "sockets and state have no place",
            "set SOFTHCA_RUNTIME_DIR to a folder that is yours alone"};
  }
  return good("runtime folder", root);
}

Finding check_own_libraries() {
  const std::string folder = runtime::executable_folder() + "/../lib/";
  if (::access((folder + "libsofthca-preload.so").c_str(), R_OK) != 0) {
    return {Verdict::problem, "libsofthca-preload.so", "not beside the program",
            "applications cannot see virtual hosts", "build it: scripts/setup"};
  }
  if (::access((folder + "libsofthca-rdmav34.so").c_str(), R_OK) != 0) {
    return {Verdict::note, "libsofthca-rdmav34.so", "not beside the program",
            "`run` uses the system's libmlx5, which is slower here", "build it: scripts/setup"};
  }
  return good("libraries", "preload and provider are beside the program");
}

// ---- rdma-core ----

/// Full name of a loaded library's file, or empty.
std::string library_file(void* handle) {
  link_map* map = nullptr;
  char resolved[PATH_MAX];
  if (::dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return {};
  return ::realpath(map->l_name, resolved) != nullptr ? resolved : map->l_name;
}

/// rdma-core's version from a file name such as libibverbs.so.1.14.44.0; -1 if it has none.
int rdma_core_version(const std::string& file) {
  const auto so = file.rfind(".so.");
  unsigned abi = 0;
  unsigned minor = 0;
  int version = -1;
  if (so == std::string::npos ||
      std::sscanf(file.c_str() + so, ".so.%u.%u.%d", &abi, &minor, &version) != 3) {
    return -1;
  }
  return version;
}

Finding check_libibverbs() {
  void* handle = ::dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return {Verdict::problem, "libibverbs", "not installed", "there is no verbs API to use",
            "apt-get install libibverbs1 ibverbs-providers"};
  }
  const std::string file = library_file(handle);
  const int version = rdma_core_version(file);
  const bool has_abi =
      ::dlvsym(handle, "verbs_register_driver_34", "IBVERBS_PRIVATE_34") != nullptr;
  ::dlclose(handle);
  const std::string seen =
      file + (version >= 0 ? " (rdma-core " + std::to_string(version) + ")" : "");
  if (!has_abi) {
    return {Verdict::note, "libibverbs", seen + " has another provider ABI than IBVERBS_PRIVATE_34",
            "our provider cannot be loaded", "use --provider mlx5, or rdma-core 44 to 56"};
  }
  return good("libibverbs", seen);
}

Finding check_libmlx5() {
  void* handle = ::dlopen("libmlx5.so.1", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return {Verdict::note, "libmlx5", "not installed", "--provider mlx5 does not work",
            "apt-get install ibverbs-providers"};
  }
  const std::string file = library_file(handle);
  ::dlclose(handle);
  return good("libmlx5", file);
}

Finding check_program(const char* program, const char* package) {
  if (is_in_path(program)) return good(program, "installed");
  return {Verdict::note, program, "not installed", "only if you want to run it",
          std::string("apt-get install ") + package};
}

// ---- The kernel ----

Finding check_memfd() {
  constexpr off_t kDaemonMemory = 64 << 20;
  rlimit limit{};
  ::getrlimit(RLIMIT_FSIZE, &limit);
  const rlimit raised{limit.rlim_max, limit.rlim_max};  // as for the daemons
  ::setrlimit(RLIMIT_FSIZE, &raised);
  const UniqueFd file(::memfd_create("softhca-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const bool works = file && ::ftruncate(file.get(), kDaemonMemory) == 0 &&
                     ::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK) == 0;
  const int error = errno;
  ::setrlimit(RLIMIT_FSIZE, &limit);
  if (!works && error == EFBIG) {
    return {Verdict::problem, "sealed memfd", std::strerror(error),
            "the daemons have no memory to share with the device",
            "a hard limit of file sizes (ulimit -H -f) of 64 MiB at least"};
  }
  if (!works) {
    errno = error;
    return {Verdict::problem, "sealed memfd", std::strerror(errno),
            "device and applications cannot share memory",
            "allow memfd_create() and sealing in the container's seccomp profile"};
  }
  return good("sealed memfd", "works");
}

Finding check_own_memory() {
  const UniqueFd file(::open("/proc/self/mem", O_RDWR | O_CLOEXEC));
  const volatile char probe = 'p';
  char seen = 0;
  const auto offset = static_cast<off_t>(reinterpret_cast<std::uintptr_t>(&probe));
  if (!file || ::pread(file.get(), &seen, 1, offset) != 1 || seen != probe) {
    return {Verdict::problem, "/proc/self/mem", std::strerror(errno),
            "the device cannot reach the application's buffers",
            "mount /proc in the container, without hidepid for your own processes"};
  }
  return good("/proc/self/mem", "readable and writable");
}

Finding check_unix_sockets() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return {Verdict::problem, "unix sockets", std::strerror(errno),
            "applications cannot reach the host's daemon", "allow AF_UNIX SOCK_SEQPACKET"};
  }
  ::close(ends[0]);
  ::close(ends[1]);
  return good("unix sockets", "SOCK_SEQPACKET works");
}

Finding check_userfaultfd() {
  const UniqueFd file(
      static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY)));
  if (!file) {
    return {Verdict::note, "userfaultfd", std::strerror(errno),
            "programs that write doorbells without libibverbs are noticed later (up to 20 ms)",
            "allow userfaultfd() in the container's seccomp profile"};
  }
  return good("userfaultfd", "allowed");
}

Finding check_ptrace() {
  const std::string scope = first_line("/proc/sys/kernel/yama/ptrace_scope");
  if (scope.empty() || scope == "0") return good("ptrace", "not restricted");
  return {Verdict::note, "ptrace", "restricted (yama/ptrace_scope is " + scope + ")",
          "nothing: applications hand out /proc/self/mem themselves", "none needed"};
}

Finding check_seccomp() {
  std::ifstream stream("/proc/self/status");
  std::string line;
  while (std::getline(stream, line)) {
    if (!line.starts_with("Seccomp:")) continue;
    if (line.find('0') != std::string::npos) return good("seccomp", "off");
    return good("seccomp", "a filter is active; the checks above say what it leaves");
  }
  return good("seccomp", "not known to this kernel");
}

Finding check_shared_memory_folder() {
  struct statvfs status {};
  if (::statvfs("/dev/shm", &status) != 0) {
    return {Verdict::note, "/dev/shm", std::strerror(errno),
            "nothing for Softhca; MPI and UCX want it", "mount a tmpfs there"};
  }
  const rlim_t free_bytes = static_cast<rlim_t>(status.f_bavail) * status.f_frsize;
  return good("/dev/shm", bytes_text(free_bytes) + " free (Softhca does not use it)");
}

Finding check_hardware() {
  if (::access("/sys/class/infiniband", F_OK) != 0) {
    return good("RDMA in the kernel", "none, and none is needed");
  }
  return {Verdict::note, "RDMA in the kernel", "/sys/class/infiniband exists",
          "commands under `run` see the virtual HCA instead of the machine's own", "none needed"};
}

// ---- Limits ----

Finding check_open_files() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  constexpr rlim_t kComfortable = 1024;
  const std::string seen = std::to_string(limit.rlim_cur) + " files";
  if (limit.rlim_cur >= kComfortable) return good("RLIMIT_NOFILE", seen);
  return {Verdict::note, "RLIMIT_NOFILE", seen, "few applications per host", "ulimit -n 1024"};
}

Finding check_locked_memory() {
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  constexpr rlim_t kComfortable = 64U << 10;
  if (limit.rlim_cur >= kComfortable) {
    return good("RLIMIT_MEMLOCK", bytes_text(limit.rlim_cur) + " (registering memory needs none)");
  }
  return {Verdict::note, "RLIMIT_MEMLOCK", bytes_text(limit.rlim_cur),
          "some programs refuse to start (Softhca itself locks nothing)", "ulimit -l unlimited"};
}

Finding check_file_size() {
  rlimit limit{};
  ::getrlimit(RLIMIT_FSIZE, &limit);
  if (limit.rlim_cur >= 1ULL << 47) return good("RLIMIT_FSIZE", bytes_text(limit.rlim_cur));
  return {Verdict::note, "RLIMIT_FSIZE", bytes_text(limit.rlim_cur),
          "queues cannot be shared with the device and are reached by system calls (slow)",
          "ulimit -f unlimited"};
}

Finding check_processors() {
  cpu_set_t processors;
  CPU_ZERO(&processors);
  ::sched_getaffinity(0, sizeof(processors), &processors);
  const int count = CPU_COUNT(&processors);
  const std::string seen = std::to_string(count) + " usable";
  if (count >= 3) return good("processors", seen);
  return {Verdict::note, "processors", seen,
          "two polling applications and the engine take turns: microseconds more per hop",
          "3 or more processors (in a container: --cpus, --cpuset-cpus)"};
}

std::vector<Finding> examine() {
  return {check_runtime_folder(),
          check_own_libraries(),
          check_libibverbs(),
          check_libmlx5(),
          check_program("ibv_devinfo", "ibverbs-utils"),
          check_program("ibstat", "infiniband-diags"),
          check_program("ib_write_bw", "perftest"),
          check_memfd(),
          check_own_memory(),
          check_unix_sockets(),
          check_userfaultfd(),
          check_ptrace(),
          check_seccomp(),
          check_shared_memory_folder(),
          check_hardware(),
          check_open_files(),
          check_locked_memory(),
          check_file_size(),
          check_processors()};
}

void print(const Finding& finding) {
  const char* mark = "ok     ";
  if (finding.verdict == Verdict::note) mark = "note   ";
  if (finding.verdict == Verdict::problem) mark = "PROBLEM";
  std::printf("%s  %-22s %s\n", mark, finding.subject.c_str(), finding.seen.c_str());
  if (finding.verdict == Verdict::good) return;
  std::printf("         %-22s costs: %s\n", "", finding.cost.c_str());
  std::printf("         %-22s to get it: %s\n", "", finding.remedy.c_str());
}

int diagnose() {
  // A file behind the limit of file sizes is an error that is reported, not the end.
  ::signal(SIGXFSZ, SIG_IGN);
  int problems = 0;
  for (const Finding& finding : examine()) {
    print(finding);
    problems += finding.verdict == Verdict::problem ? 1 : 0;
  }
  if (problems == 0) {
    std::printf("Softhca works here.\n");
    return kExitOk;
  }
  std::printf("%d problem%s: Softhca does not work here until %s solved.\n", problems,
              problems == 1 ? "" : "s", problems == 1 ? "it is" : "they are");
  return kExitFailed;
}

}  // namespace

void add_doctor(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "doctor",
      "Say what this machine lacks, what it costs, and how to get it; exit code 1 if "
      "Softhca cannot work");
  command->callback([] {
    const int code = diagnose();
    if (code != kExitOk) throw CLI::RuntimeError(code);
  });
}

}  // namespace softhca::cli
