// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "bench/single_step.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <new>
#include <sstream>
#include <string>
#include <vector>

#include "bench/fail.h"

namespace softhca::bench {
namespace {

/// Whose code it is. A library that nobody below names works for its caller.
enum class Owner : std::uint8_t { program, provider, preload, anybody };

struct Code {
  std::uint64_t begin;
  std::uint64_t end;
  Owner owner;
};

Owner owner_of(const std::string& path, const std::string& program) {
  if (path == program) return Owner::program;
  if (path.find("softhca-preload") != std::string::npos) return Owner::preload;
  if (path.find("-rdmav") != std::string::npos || path.find("libmlx5") != std::string::npos)
    return Owner::provider;
  return Owner::anybody;
}

std::vector<Code> code_of(pid_t process) {
  char program[4096] = {};
  if (readlink("/proc/self/exe", program, sizeof(program) - 1) < 0) fail("/proc/self/exe");
  std::ifstream maps("/proc/" + std::to_string(process) + "/maps");
  std::vector<Code> result;
  for (std::string line; std::getline(maps, line);) {
    std::istringstream fields(line);
    std::string access;
    std::string skipped;
    std::string path;
    Code code{};
    char dash = 0;
    fields >> std::hex >> code.begin >> dash >> code.end >> access >> skipped >> skipped >>
        skipped >> path;
    if (access.find('x') == std::string::npos) continue;
    code.owner = owner_of(path, program);
    result.push_back(code);
  }
  return result;
}

class Tracer {
 public:
  Tracer(pid_t process, Steps& steps) : process_(process), steps_(steps) {}

  /// Until the process ends; its exit status.
  int run() {
    for (;;) {
      int status = 0;
      if (waitpid(process_, &status, 0) < 0) fail("waitpid");
      if (WIFEXITED(status)) return WEXITSTATUS(status);
      if (WIFSIGNALED(status)) return 128 + WTERMSIG(status);
      const int signal = WSTOPSIG(status);
      resume(signal == SIGTRAP ? trapped() : signal);
    }
  }

 private:
  /// A mark, or a step that is done: nothing that the process should see.
  int trapped() {
    siginfo_t info{};
    if (ptrace(PTRACE_GETSIGINFO, process_, nullptr, &info) != 0) fail("PTRACE_GETSIGINFO");
    if (info.si_code == SI_KERNEL) {  // int3
      counting_ = !counting_;
      if (counting_) begin();
    }
    return 0;
  }

  void begin() {
    steps_ = Steps{};
    if (code_.empty()) code_ = code_of(process_);
    owner_ = Owner::program;
    last_ = 0;
  }

  /// Counts the instruction that is next, and lets it run; outside of marks, everything.
  void resume(int signal) {
    if (counting_ && signal == 0) count();
    if (ptrace(counting_ ? PTRACE_SINGLESTEP : PTRACE_CONT, process_, nullptr, signal) != 0)
      fail("ptrace");
  }

  void count() {
    const std::uint64_t at = word(PTRACE_PEEKUSER, offsetof(user_regs_struct, rip));
    if (at == last_) return;  // Another round of a string instruction.
    last_ = at;
    const std::uint64_t code = word(PTRACE_PEEKTEXT, at);
    constexpr std::uint64_t kMark = 0xcc;
    constexpr std::uint64_t kSystemCall = 0x050f;
    if ((code & 0xff) == kMark) return;
    for (const Code& range : code_) {
      if (at >= range.begin && at < range.end && range.owner != Owner::anybody)
        owner_ = range.owner;
    }
    ++steps_.total;
    if (owner_ == Owner::preload) ++steps_.in_preload;
    if ((code & 0xffff) == kSystemCall) ++steps_.system_calls;
  }

  std::uint64_t word(__ptrace_request request, std::uint64_t address) const {
    errno = 0;
    const long value = ptrace(request, process_, address, nullptr);
    if (value == -1 && errno != 0) fail("PTRACE_PEEK");
    return static_cast<std::uint64_t>(value);
  }

  pid_t process_;
  Steps& steps_;
  std::vector<Code> code_;
  bool counting_ = false;
  Owner owner_ = Owner::program;
  std::uint64_t last_ = 0;
};

}  // namespace

int run_stepped(const std::function<int(const volatile Steps&)>& program) {
  void* shared =
      mmap(nullptr, sizeof(Steps), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) fail("mmap");
  auto* steps = new (shared) Steps;
  std::fflush(stdout);
  const pid_t child = fork();
  if (child < 0) fail("fork");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) fail("PTRACE_TRACEME");
    std::exit(program(*steps));
  }
  return Tracer(child, *steps).run();
}

}  // namespace softhca::bench
