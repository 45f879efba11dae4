// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause

/// `softhca run`: brings a virtual host up, takes a lease on it, and becomes the command.

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <elf.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include "emulator/cli/commands.h"
#include "emulator/cli/fabric_access.h"
#include "emulator/cli/usage.h"
#include "emulator/control/bring_up.h"
#include "emulator/control/host_client.h"
#include "emulator/runtime/paths.h"
#include "emulator/runtime/spawn.h"
#include "emulator/runtime/unix_socket.h"
#include "kernel-shim/host/device/vfio/pci_address.h"

namespace softhca::cli {
namespace {

using runtime::Error;
using runtime::Result;
using runtime::UniqueFd;

/// As shells have it.
constexpr int kExitCannotExecute = 126;
constexpr int kExitNotFound = 127;

constexpr char kOwnProvider[] = "softhca";
constexpr char kStockProvider[] = "mlx5";
/// Used without --provider, if it is there.
constexpr const char* kDefaultProvider = kOwnProvider;

constexpr char kPreloadFile[] = "libsofthca-preload.so";
constexpr char kProviderFile[] = "libsofthca-rdmav34.so";
/// What libibverbs wants in a list of drivers: it appends "-rdmav34.so".
constexpr char kDriverName[] = "/libsofthca";

struct RunOptions {
  std::string fabric;
  std::string host{runtime::kDefaultHost};
  std::string provider;
  /// A device bound to vfio-pci, instead of one of the fabric's emulator; may be empty.
  std::string pci_address;
  std::string program;
};

void warn(const std::string& message) {
  std::fprintf(stderr, "softhca: warning: %s\n", message.c_str());
}

std::string real_path(const std::string& path) {
  char resolved[PATH_MAX];
  return ::realpath(path.c_str(), resolved) != nullptr ? resolved : path;
}

std::string library_folder() {
  return real_path(runtime::executable_folder() + "/../lib");
}

bool is_readable(const std::string& path) {
  return ::access(path.c_str(), R_OK) == 0;
}

// ---- The command: is it there, and can a preload reach it? ----

/// The file that execvp() will execute, or nullopt.
std::optional<std::string> find_command(const std::string& command) {
  if (command.find('/') != std::string::npos) {
    return ::access(command.c_str(), F_OK) == 0 ? std::optional(command) : std::nullopt;
  }
  const char* variable = std::getenv("PATH");
  std::string_view path = variable != nullptr ? variable : "/bin:/usr/bin";
  while (true) {
    const auto end = std::min(path.find(':'), path.size());
    const std::string folder(path.substr(0, end));
    const std::string file = (folder.empty() ? "." : folder) + "/" + command;
    struct stat status {};
    if (::stat(file.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
        ::access(file.c_str(), X_OK) == 0) {
      return file;
    }
    if (end == path.size()) return std::nullopt;
    path.remove_prefix(end + 1);
  }
}

/// The interpreter named in a script's first line, or the file itself.
std::string executed_file(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  std::string line;
  char magic[2] = {};
  if (!stream.read(magic, 2) || magic[0] != '#' || magic[1] != '!') return file;
  std::getline(stream, line);
  const auto begin = line.find_first_not_of(" \t");
  if (begin == std::string::npos) return file;
  return line.substr(begin, line.find_first_of(" \t\r", begin) - begin);
}

/// Why the dynamic linker will not load our library into this program; empty if it will.
std::string unreachable_reason(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  Elf64_Ehdr header{};
  if (!stream.read(reinterpret_cast<char*>(&header), sizeof(header)) ||
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) {
    return {};
  }
  if (header.e_ident[EI_CLASS] != ELFCLASS64) return "it is not a 64-bit program";
  bool is_dynamic = false;
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment{};
    stream.seekg(static_cast<std::streamoff>(header.e_phoff + i * sizeof(segment)));
    if (!stream.read(reinterpret_cast<char*>(&segment), sizeof(segment))) break;
    is_dynamic = is_dynamic || segment.p_type == PT_INTERP;
  }
  if (!is_dynamic) return "it is linked statically";
  struct stat status {};
  if (::getuid() == 0 || ::stat(file.c_str(), &status) != 0) return {};
  if ((status.st_mode & S_ISUID) != 0 && status.st_uid != ::getuid()) return "it is setuid";
  if ((status.st_mode & S_ISGID) != 0 && status.st_gid != ::getgid()) return "it is setgid";
  if (::getxattr(file.c_str(), "security.capability", nullptr, 0) > 0) {
    return "it has file capabilities";
  }
  return {};
}

void warn_if_unreachable(const std::string& command, const std::string& file) {
  const std::string executed = executed_file(file);
  const std::string reason = unreachable_reason(executed);
  if (reason.empty()) return;
  warn(command + " will not see the virtual host: " +
       (executed == file ? reason : "of its interpreter " + executed + ", " + reason) +
       ", so that no library can be preloaded into it");
}

// ---- The lease ----

/// A connection that keeps the host up for as long as anybody holds it. It gets a high number,
/// out of the way of what the command opens, and is inherited.
Result<int> take_lease(const RunOptions& options) {
  constexpr int kAttempts = 5;
  Error last;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    emulator::AttachOptions attach;
    attach.pci_address = options.pci_address;
    if (auto up = emulator::bring_up_host(options.fabric, options.host, attach); !up) {
      return up.error();
    }
    const auto paths = runtime::host_paths(options.fabric, options.host);
    auto socket = runtime::connect_unix(paths.kernel_socket, SOCK_SEQPACKET);
    int error = socket ? 0 : socket.error().code;
    if (socket) {
      if (auto taken = emulator::take_lease(socket->get()); !taken) error = taken.error().code;
    }
    if (error == 0) {
      int lease = -1;
      // EINVAL: the number is beyond the limit of open files.
      for (const int lowest : {600, 100, 40, 3}) {
        if (lease < 0) lease = ::fcntl(socket->get(), F_DUPFD, lowest);
      }
      if (lease < 0) return runtime::system_error(errno, "descriptor of the lease");
      return lease;
    }
    last = runtime::system_error(error, "lease of host " + options.host);
    // The daemon was just ending: start another one.
    if (error != ECONNREFUSED && error != ECONNRESET && error != ENOENT) break;
  }
  return last;
}

// ---- The environment of the command ----

/// `list` without entries whose last part begins with `name`, and with `first` in front.
std::string with_first(const char* list, std::string_view separators, std::string_view name,
                       const std::string& first) {
  std::string result = first;
  std::string_view rest = list != nullptr ? list : "";
  while (!rest.empty()) {
    const auto end = std::min(rest.find_first_of(separators), rest.size());
    const std::string_view entry = rest.substr(0, end);
    const auto slash = entry.rfind('/');
    const auto file = slash == std::string_view::npos ? entry : entry.substr(slash + 1);
    if (!entry.empty() && !file.starts_with(name)) {
      if (!result.empty()) result += ':';
      result += entry;
    }
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return result;
}

void set_or_unset(const char* name, const std::string& value) {
  if (value.empty()) {
    ::unsetenv(name);
  } else {
    ::setenv(name, value.c_str(), 1);
  }
}

/// For programs that do not link a provider: the list from which libibverbs loads them.
void set_drivers(const std::string& provider) {
  const char* variable = std::getenv("RDMAV_DRIVERS") != nullptr ? "RDMAV_DRIVERS" : "IBV_DRIVERS";
  const std::string own = provider == kOwnProvider ? library_folder() + kDriverName : "";
  set_or_unset(variable, with_first(std::getenv(variable), ":;", kDriverName + 1, own));
}

void set_environment(const RunOptions& options, int lease) {
  const std::string preload = library_folder() + "/" + kPreloadFile;
  set_or_unset("LD_PRELOAD",
               with_first(std::getenv("LD_PRELOAD"), ": ", "libsofthca-preload", preload));
  const auto paths = runtime::host_paths(options.fabric, options.host);
  ::setenv("SOFTHCA_HOST_DIR", real_path(paths.folder).c_str(), 1);
  ::setenv("SOFTHCA_PROVIDER", options.provider.c_str(), 1);
  ::setenv("SOFTHCA_LEASE_FD", std::to_string(lease).c_str(), 1);
  // A command that calls `softhca` again means the same fabric and host.
  ::setenv("SOFTHCA_FABRIC", options.fabric.c_str(), 1);
  ::setenv("SOFTHCA_HOST", options.host.c_str(), 1);
  set_or_unset("SOFTHCA_DEVICE", options.pci_address);
  set_drivers(options.provider);
}

// ---- The subcommand ----

void check_libraries(RunOptions& options) {
  const std::string folder = library_folder();
  if (!is_readable(folder + "/" + kPreloadFile)) {
    fail(folder + "/" + kPreloadFile + " is missing: build the project (scripts/setup)",
         kExitFailed);
  }
  if (folder.find_first_of(" :;") != std::string::npos) {
    fail("'" + folder + "' holds a space or colon, which LD_PRELOAD cannot express: move the build",
         kExitFailed);
  }
  const bool own_is_there = is_readable(folder + "/" + kProviderFile);
  if (options.provider.empty()) {
    options.provider = own_is_there ? kDefaultProvider : kStockProvider;
  }
  if (options.provider == kOwnProvider && !own_is_there) {
    fail(folder + "/" + kProviderFile + " is missing: build it, or use --provider mlx5",
         kExitFailed);
  }
}

/// `softhca run` inside `softhca run`: the outer lease is not for the daemons that we start; the
/// command gets one of its own.
void drop_outer_lease() {
  const char* outer = std::getenv("SOFTHCA_LEASE_FD");
  if (outer == nullptr) return;
  const int fd = std::atoi(outer);
  struct stat status {};
  if (fd > 2 && ::fstat(fd, &status) == 0 &&
      (S_ISSOCK(status.st_mode) || S_ISCHR(status.st_mode))) {
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  }
  ::unsetenv("SOFTHCA_LEASE_FD");
}

[[noreturn]] void execute(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  arguments.reserve(command.size() + 1);
  for (const std::string& argument : command) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  const int error = errno;
  fail(command[0] + ": " + std::strerror(error),
       error == ENOENT ? kExitNotFound : kExitCannotExecute);
}

void run(RunOptions options, const std::vector<std::string>& command) {
  if (command.empty()) fail("run: no command given; see: softhca run --help", kExitUsage);
  const auto file = find_command(command[0]);
  if (!file) fail(command[0] + ": command not found", kExitNotFound);
  // Else two names would stand for one device.
  if (!options.pci_address.empty()) options.host = shim::host_of_device(options.pci_address);
  check_libraries(options);
  warn_if_unreachable(command[0], *file);
  drop_outer_lease();
  auto lease = take_lease(options);
  if (!lease) {
    if (!options.pci_address.empty()) fail(lease.error().message, kExitFailed);
    std::fprintf(stderr, "softhca: %s\n", lease.error().message.c_str());
    fail("`softhca doctor` says what this machine lacks", kExitFailed);
  }
  set_environment(options, *lease);
  execute(command);
}

}  // namespace

void add_run(CLI::App& app) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command = app.add_subcommand(
      "run",
      "Run a command on a virtual host, which is started if need be and ends with its last "
      "command");
  command->footer(
      "Write it as: softhca run [OPTIONS] -- COMMAND [ARGUMENTS...]\n"
      "The exit code is the command's; 127 if it is not found, 126 if it cannot be executed.");
  add_fabric_option(*command, options->fabric);
  command->add_option("-H,--host", options->host, "Name of the virtual host")
      ->envname("SOFTHCA_HOST")
      ->capture_default_str()
      ->check(complain_of_name);
  command
      ->add_option(
          "--device", options->pci_address,
          "PCI address of a ConnectX that is bound to vfio-pci: the host has it instead of "
          "an emulated one, and is named after it")
      ->envname("SOFTHCA_DEVICE")
      ->check(complain_of_pci_address);
  command
      ->add_option("--provider", options->provider,
                   "Verbs provider: softhca (ours; the default) or mlx5 (the system's libmlx5)")
      ->check(CLI::IsMember({kOwnProvider, kStockProvider}));
  // The first word is an option, so that what follows "--" belongs to this subcommand; the others
  // are left as they are, even if they look like options of ours.
  command->add_option("command", options->program, "Program to run");
  command->prefix_command();
  command->callback([options, command] {
    std::vector<std::string> words = command->remaining();
    const bool is_marked = !words.empty() && words.front() == "--";
    if (is_marked) words.erase(words.begin());
    if (!is_marked && !words.empty()) {
      // Is it a mistyped option of ours, or one of a command without its "--"?
      const std::string unknown = unknown_word(*command, words.front());
      const bool is_before_mark = std::find(words.begin(), words.end(), "--") != words.end();
      const bool meant_for_us =
          options->program.empty() || is_before_mark || unknown.ends_with('?');
      if (words.front().starts_with('-') && meant_for_us) {
        fail("run: " + unknown + "; see: softhca run --help", kExitUsage);
      }
      fail("run: write \"--\" before the command: softhca run [OPTIONS] -- COMMAND [ARGUMENTS...]",
           kExitUsage);
    }
    if (!options->program.empty()) words.insert(words.begin(), options->program);
    run(*options, words);
  });
}

}  // namespace softhca::cli
