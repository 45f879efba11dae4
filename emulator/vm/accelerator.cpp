// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/vm/accelerator.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "emulator/runtime/unique_fd.h"
#include "emulator/vm/cache.h"

namespace softhca::vm {
namespace {

using runtime::UniqueFd;

constexpr std::chrono::seconds kProbeTime{10};
/// A kernel without a root disk gets this far, which takes all of interrupts, timers and modes.
constexpr std::string_view kStarted = "Kernel panic - not syncing: VFS";

/// Starts the kernel alone under KVM; its console is the returned pipe.
pid_t start_probe(const QemuProgram& program, const GuestImage& image, int output) {
  std::vector<std::string> words = program.command;
  for (const char* word : {"-accel", "kvm", "-cpu", "host", "-m", "256", "-machine", "q35",
                           "-no-user-config", "-nodefaults", "-display", "none", "-no-reboot",
                           "-serial", "stdio", "-append", "console=ttyS0 panic=-1", "-kernel"}) {
    words.emplace_back(word);
  }
  words.push_back(image.kernel);
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const std::string& variable : program.environment) {
    ::putenv(const_cast<char*>(variable.c_str()));
  }
  const int null = ::open("/dev/null", O_RDWR);
  ::dup2(null, STDIN_FILENO);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(null, STDERR_FILENO);
  ::execv(arguments[0], arguments.data());
  ::_exit(127);
}

bool says_started(int console) {
  const auto end = std::chrono::steady_clock::now() + kProbeTime;
  std::string text;
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    pollfd poll{console, POLLIN, 0};
    if (::poll(&poll, 1, static_cast<int>(left.count())) <= 0) continue;
    char buffer[4096];
    const ssize_t got = ::read(console, buffer, sizeof(buffer));
    if (got <= 0) return false;
    text.append(buffer, static_cast<std::size_t>(got));
    if (text.find(kStarted) != std::string::npos) return true;
  }
}

bool kvm_starts_a_kernel(const QemuProgram& program, const GuestImage& image) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return false;
  const UniqueFd reading(ends[0]);
  UniqueFd writing(ends[1]);
  const pid_t child = start_probe(program, image, writing.get());
  writing.reset();
  if (child < 0) return false;
  const bool started = says_started(reading.get());
  ::kill(child, SIGKILL);
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return started;
}

std::string machine_kernel() {
  utsname name{};
  ::uname(&name);
  return std::string(name.release) + " " + name.version;
}

}  // namespace

std::string choose_accelerator(const std::string& wanted, const QemuProgram& program,
                               const GuestImage& image) {
  if (wanted != "auto") return wanted;
  if (::access("/dev/kvm", R_OK | W_OK) != 0) return "tcg";
  const std::string file = cache_folder() + "/kvm-verdict";
  const std::string kernel = machine_kernel();
  std::string verdict;
  std::string judged_kernel;
  std::ifstream known(file);
  if (std::getline(known, verdict) && std::getline(known, judged_kernel) &&
      judged_kernel == kernel && (verdict == "kvm" || verdict == "tcg")) {
    return verdict;
  }
  verdict = kvm_starts_a_kernel(program, image) ? "kvm" : "tcg";
  std::ofstream(file) << verdict << "\n" << kernel << "\n";
  return verdict;
}

}  // namespace softhca::vm
