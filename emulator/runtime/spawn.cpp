// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/runtime/spawn.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <optional>

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "emulator/runtime/unique_fd.h"

extern char** environ;

namespace softhca::runtime {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kReadyVariable[] = "SOFTHCA_READY_FD";
constexpr int kReadyFd = 3;  // in the daemon
constexpr char kReady = '\n';

/// LD_PRELOAD without our own library: a daemon must not see itself as an application.
std::string without_own_preload(std::string_view list) {
  std::string kept;
  while (!list.empty()) {
    const auto end = std::min(list.find_first_of(": "), list.size());
    const std::string_view entry = list.substr(0, end);
    if (!entry.empty() && entry.find("libsofthca-preload") == std::string_view::npos) {
      if (!kept.empty()) kept += ':';
      kept += entry;
    }
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return kept;
}

std::vector<std::string> daemon_environment() {
  std::vector<std::string> variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view variable(*entry);
    if (variable.starts_with("SOFTHCA_LEASE_FD=") || variable.starts_with("SOFTHCA_HOST_DIR=") ||
        variable.starts_with(kReadyVariable)) {
      continue;
    }
    if (variable.starts_with("LD_PRELOAD=")) {
      const std::string kept = without_own_preload(variable.substr(sizeof("LD_PRELOAD=") - 1));
      if (!kept.empty()) variables.push_back("LD_PRELOAD=" + kept);
      continue;
    }
    variables.emplace_back(variable);
  }
  variables.push_back(std::string(kReadyVariable) + "=" + std::to_string(kReadyFd));
  return variables;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  result.reserve(strings.size() + 1);
  for (std::string& string : strings) result.push_back(string.data());
  result.push_back(nullptr);
  return result;
}

std::string own_executable() {
  char path[4096];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof(path) - 1);
  if (length <= 0) return "/proc/self/exe";
  path[length] = 0;
  // After a rebuild the link reads "... (deleted)"; the magic link still works.
  return ::access(path, X_OK) == 0 ? std::string(path) : std::string("/proc/self/exe");
}

void close_from(int first) {
  if (::close_range(static_cast<unsigned>(first), ~0U, 0) == 0) return;
  for (int fd = first; fd < 4096; ++fd) ::close(fd);
}

struct Launch {
  const char* executable;
  char* const* arguments;
  char* const* environment;
  int log;
  int ready;
};

/// What a daemon shares with others are files to the kernel. A limit that a user set for the files
/// of the command is not meant for them.
void raise_file_size_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_FSIZE, &limit);
}

/// Runs in the forked child: only async-signal-safe calls.
[[noreturn]] void become_daemon(const Launch& launch) {
  ::setsid();
  const pid_t daemon = ::fork();
  if (daemon != 0) ::_exit(daemon < 0 ? 127 : 0);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int signal : {SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGPIPE, SIGCHLD}) {
    ::signal(signal, SIG_DFL);
  }
  ::umask(077);
  raise_file_size_limit();
  // Move both out of the way of the numbers that they are copied to.
  const int log = ::fcntl(launch.log, F_DUPFD, 10);
  const int ready = ::fcntl(launch.ready, F_DUPFD, 10);
  const int null = ::open("/dev/null", O_RDONLY);
  if (log < 0 || ready < 0 || null < 0 || ::dup2(null, STDIN_FILENO) < 0 ||
      ::dup2(log, STDOUT_FILENO) < 0 || ::dup2(log, STDERR_FILENO) < 0 ||
      ::dup2(ready, kReadyFd) < 0 || ::chdir("/") != 0) {
    ::_exit(127);
  }
  close_from(kReadyFd + 1);
  ::execve(launch.executable, launch.arguments, launch.environment);
  ::_exit(127);
}

/// What the log gained beyond `start`, at most its last lines.
std::string log_tail(const std::string& path, off_t start) {
  const UniqueFd log(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (!log || ::fstat(log.get(), &status) != 0 || status.st_size <= start) return {};
  constexpr off_t kTail = 2000;
  const off_t from = std::max(start, status.st_size - kTail);
  std::string text(static_cast<std::size_t>(status.st_size - from), '\0');
  const ssize_t got = ::pread(log.get(), text.data(), text.size(), from);
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

/// The daemon's report: one letter, then a reason up to end of file. nullopt: not (completely)
/// there in time.
std::optional<std::string> read_report(int fd, std::chrono::milliseconds timeout) {
  std::string report;
  const auto end = Clock::now() + timeout;
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0) return std::nullopt;
    pollfd poll{fd, POLLIN, 0};
    if (::poll(&poll, 1, static_cast<int>(left)) <= 0) continue;
    char buffer[512];
    const ssize_t got = ::read(fd, buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return report;
    report.append(buffer, static_cast<std::size_t>(got));
    if (report[0] == kReady) return report;
  }
}

void report(const std::string& message) {
  const UniqueFd fd(take_ready_fd());
  if (!fd || message.empty()) return;
  // A reader that has gone away is no reason to die of SIGPIPE.
  struct sigaction ignore {};
  struct sigaction before {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, &before);
  [[maybe_unused]] const ssize_t written = ::write(fd.get(), message.data(), message.size());
  ::sigaction(SIGPIPE, &before, nullptr);
}

}  // namespace

Result<Done> spawn_daemon(const DaemonOptions& options) {
  const std::string executable = options.executable.empty() ? own_executable() : options.executable;
  std::vector<std::string> arguments{"softhca"};
  arguments.insert(arguments.end(), options.arguments.begin(), options.arguments.end());
  std::vector<std::string> environment = daemon_environment();
  const std::vector<char*> argument_pointers = pointers(arguments);
  const std::vector<char*> environment_pointers = pointers(environment);

  const UniqueFd log(::open(options.log_file.c_str(),
                            O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!log) return system_error(errno, options.log_file);
  const off_t log_start = ::lseek(log.get(), 0, SEEK_END);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error(errno, "pipe");
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);

  const Launch launch{executable.c_str(), argument_pointers.data(), environment_pointers.data(),
                      log.get(), write_end.get()};
  const pid_t child = ::fork();
  if (child < 0) return system_error(errno, "fork");
  if (child == 0) become_daemon(launch);
  write_end.reset();
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }

  const std::string what = options.arguments.empty() ? "daemon" : "softhca " + options.arguments[0];
  const auto report = read_report(read_end.get(), options.timeout);
  if (!report) {
    return Error{ETIMEDOUT, what + " is not ready after " +
                                std::to_string(options.timeout.count()) +
                                " ms; see its log: " + options.log_file};
  }
  if (!report->empty() && report->front() == kReady) return Done{};
  if (!report->empty()) return Error{ECHILD, what + ": " + *report};
  const std::string tail = log_tail(options.log_file, log_start);
  return Error{ECHILD, what + " ended before it was ready; its log " + options.log_file +
                           (tail.empty() ? " says nothing" : " says:\n" + tail)};
}

int take_ready_fd() {
  const char* text = std::getenv(kReadyVariable);
  if (text == nullptr) return -1;
  int fd = -1;
  std::from_chars(text, text + std::strlen(text), fd);
  ::unsetenv(kReadyVariable);
  return fd;
}

void notify_ready() {
  report(std::string(1, kReady));
}

void notify_failed(const std::string& reason) {
  report(reason);
}

std::string executable_folder() {
  char path[4096];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof(path) - 1);
  if (length <= 0) return ".";
  const std::string_view name(path, static_cast<std::size_t>(length));
  return std::string(name.substr(0, name.rfind('/')));
}

}  // namespace softhca::runtime
