// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/vm/subprocess.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string_view>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "emulator/runtime/unique_fd.h"

namespace softhca::vm {
namespace {

using runtime::Done;
using runtime::Error;
using runtime::Result;
using runtime::UniqueFd;

/// Starts the program; it dies with its parent. -1 and errno: fork failed.
pid_t start(const std::string& program, const std::vector<std::string>& command, int output,
            int error_output) {
  std::vector<char*> arguments;
  arguments.reserve(command.size() + 1);
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const int null = ::open("/dev/null", O_RDWR);
  ::dup2(null, STDIN_FILENO);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(error_output < 0 ? null : error_output, STDERR_FILENO);
  ::execv(program.c_str(), arguments.data());
  ::_exit(127);
}

Result<Done> wait_for(pid_t child, const std::string& name) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return runtime::system_error(errno, "waiting for " + name);
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return Done{};
  return Error{
      EIO, name + (WIFEXITED(status) ? " ended with status " + std::to_string(WEXITSTATUS(status))
                                     : " was ended by signal " + std::to_string(WTERMSIG(status)))};
}

}  // namespace

std::optional<std::string> find_program(const std::string& name) {
  const char* variable = std::getenv("PATH");
  const std::string path = std::string(variable != nullptr ? variable : "/bin:/usr/bin") +
                           ":/usr/local/sbin:/usr/sbin:/sbin";
  std::string_view rest = path;
  while (true) {
    const auto end = std::min(rest.find(':'), rest.size());
    std::string file = std::string(rest.substr(0, end)) + "/" + name;
    if (end > 0 && ::access(file.c_str(), X_OK) == 0) return file;
    if (end == rest.size()) return std::nullopt;
    rest.remove_prefix(end + 1);
  }
}

Result<std::string> capture_output(const std::vector<std::string>& command) {
  const auto program = find_program(command.front());
  if (!program) return Error{ENOENT, "there is no program " + command.front()};
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return runtime::system_error(errno, "pipe");
  const UniqueFd reading(ends[0]);
  UniqueFd writing(ends[1]);
  const pid_t child = start(*program, command, writing.get(), -1);
  if (child < 0) return runtime::system_error(errno, "starting " + command.front());
  writing.reset();
  std::string output;
  char buffer[4096];
  while (true) {
    const ssize_t got = ::read(reading.get(), buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    output.append(buffer, static_cast<std::size_t>(got));
  }
  if (auto done = wait_for(child, command.front()); !done) return done.error();
  return output;
}

Result<Done> run_logged(const std::vector<std::string>& command, const std::string& log_file) {
  const auto program = find_program(command.front());
  if (!program) return Error{ENOENT, "there is no program " + command.front()};
  const UniqueFd log(::open(log_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!log) return runtime::system_error(errno, log_file);
  const pid_t child = start(*program, command, log.get(), log.get());
  if (child < 0) return runtime::system_error(errno, "starting " + command.front());
  return wait_for(child, command.front());
}

std::string shell_quoted(const std::string& text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./,=:+%@";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string quoted = "'";
  for (const char character : text) {
    if (character == '\'') {
      quoted += "'\\''";
    } else {
      quoted += character;
    }
  }
  return quoted + "'";
}

}  // namespace softhca::vm
