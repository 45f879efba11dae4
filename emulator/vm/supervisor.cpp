// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/vm/supervisor.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "emulator/control/bring_up.h"
#include "emulator/runtime/lock.h"
#include "emulator/runtime/unix_socket.h"
#include "emulator/vm/command_client.h"
#include "emulator/vm/command_relay.h"
#include "emulator/vm/guardian.h"
#include "emulator/vm/seed.h"

namespace softhca::vm {
namespace {

using runtime::Done;
using runtime::Error;
using runtime::FileLock;
using runtime::Result;
using runtime::UniqueFd;
using Clock = std::chrono::steady_clock;

/// A stock kernel under plain emulation on a busy machine takes its time.
constexpr std::chrono::seconds kBootTime{300};
constexpr std::string_view kPanic = "Kernel panic - not syncing";

/// QEMU as a child process that dies with us.
class QemuProcess {
 public:
  static Result<QemuProcess> start(const GuestRun& run, const GuestPaths& paths);
  QemuProcess(QemuProcess&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  QemuProcess& operator=(QemuProcess&&) = delete;
  ~QemuProcess() { end(); }

  /// Its wait status if it has ended.
  std::optional<int> ended();
  /// Ends it if it runs.
  void end();

 private:
  explicit QemuProcess(pid_t pid) : pid_(pid) {}

  pid_t pid_;
};

[[noreturn]] void become_qemu(std::vector<std::string>& words, const GuestRun& run,
                              const GuestPaths& paths) {
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (run.console == Console::kFile) {
    // The terminal's Ctrl-C is for us, who end QEMU; our stdin is the command's.
    ::setpgid(0, 0);
    const int null = ::open("/dev/null", O_RDWR);
    const int log = ::open(paths.log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    ::dup2(null, STDIN_FILENO);
    ::dup2(log, STDOUT_FILENO);
    ::dup2(log, STDERR_FILENO);
  }
  for (const std::string& variable : run.program.environment) {
    ::putenv(const_cast<char*>(variable.c_str()));
  }
  if (::chdir(paths.folder.c_str()) == 0) ::execv(arguments[0], arguments.data());
  std::fprintf(stderr, "softhca: cannot start %s: %s\n", arguments[0], std::strerror(errno));
  ::_exit(127);
}

Result<QemuProcess> QemuProcess::start(const GuestRun& run, const GuestPaths& paths) {
  auto words = qemu_command(run.options, run.program, run.image, run.accelerator, run.console);
  const pid_t pid = ::fork();
  if (pid < 0) return runtime::system_error(errno, "fork");
  if (pid == 0) become_qemu(words, run, paths);
  return QemuProcess(pid);
}

std::optional<int> QemuProcess::ended() {
  int status = 0;
  if (pid_ < 0 || ::waitpid(pid_, &status, WNOHANG) != pid_) return std::nullopt;
  pid_ = -1;
  return status;
}

void QemuProcess::end() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGTERM);
  constexpr int kPatience = 100;
  for (int i = 0; i < kPatience && pid_ >= 0; ++i) {
    if (ended()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

/// QEMU makes the terminal raw and, when killed, leaves it so.
class TerminalState {
 public:
  TerminalState() : known_(::tcgetattr(STDIN_FILENO, &before_) == 0) {}
  TerminalState(const TerminalState&) = delete;
  TerminalState& operator=(const TerminalState&) = delete;
  ~TerminalState() {
    if (known_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }

 private:
  termios before_{};
  bool known_;
};

UniqueFd watch_signals() {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&signals, signal);
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  return UniqueFd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
}

std::string file_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// `title` and the last lines of `text`; nothing if there are none.
std::string last_lines(const std::string& title, const std::string& text) {
  constexpr int kLines = 12;
  std::size_t end = text.size();
  while (end > 0 && text[end - 1] == '\n') --end;
  std::size_t start = end;
  for (int lines = 0; start > 0 && lines <= kLines; --start) {
    if (text[start - 1] == '\n' && ++lines == kLines) break;
  }
  return end == 0 ? "" : title + text.substr(start, end - start);
}

/// The guest's command, run beside the supervisor as any other client.
class CommandThread {
 public:
  CommandThread(const std::string& socket_path, const std::string& command)
      : done_(::eventfd(0, EFD_CLOEXEC)) {
    thread_ = std::thread([this, socket_path, command] {
      auto socket = runtime::connect_unix(socket_path, SOCK_STREAM);
      result_ =
          socket ? run_command(socket->get(), CommandRun{command}) : Result<int>(socket.error());
      const std::uint64_t one = 1;
      [[maybe_unused]] const ssize_t told = ::write(done_.get(), &one, sizeof(one));
    });
  }
  CommandThread(const CommandThread&) = delete;
  CommandThread& operator=(const CommandThread&) = delete;
  ~CommandThread() { thread_.join(); }

  int fd() const { return done_.get(); }
  Result<int> result() { return result_; }

 private:
  UniqueFd done_;
  Result<int> result_ = 0;
  std::thread thread_;
};

class Supervisor {
 public:
  Supervisor(const GuestRun& run, const GuestPaths& paths, int signals, QemuProcess& qemu,
             CommandRelay& relay)
      : run_(run), paths_(paths), signals_(signals), qemu_(qemu), relay_(relay) {}

  /// `command_fd` becomes readable when the command has ended; -1: there is none.
  Result<Done> watch(int command_fd) {
    const auto boot_deadline = std::min(Clock::now() + kBootTime, run_.deadline);
    while (true) {
      std::vector<pollfd> polled{{signals_, POLLIN, 0}, {command_fd, POLLIN, 0}};
      relay_.watch(polled);
      const int timeout = relay_.is_connecting() ? 50 : 1000;
      if (::poll(polled.data(), polled.size(), timeout) < 0) continue;
      relay_.serve(polled, 2);
      if (polled[1].revents != 0) return Done{};
      if (polled[0].revents != 0) {
        if (auto noted = note_signal(); !noted) return noted;
      }
      if (const auto status = qemu_.ended()) return after_qemu(*status);
      announce();
      if (Clock::now() >= run_.deadline) return Error{ETIMEDOUT, "the time is over"};
      if (!relay_.is_up() && run_.console == Console::kFile && Clock::now() >= boot_deadline) {
        return Error{ETIMEDOUT, "the guest did not come up"};
      }
      if (has_panicked()) return Error{EIO, "the guest's kernel panicked"};
    }
  }

 private:
  Result<Done> note_signal() {
    signalfd_siginfo info{};
    while (::read(signals_, &info, sizeof(info)) == sizeof(info)) {
      if (info.ssi_signo == SIGCHLD) continue;
      return Error{EINTR, std::string("ended by ") + ::strsignal(static_cast<int>(info.ssi_signo))};
    }
    return Done{};
  }

  Result<Done> after_qemu(int status) {
    if (WIFSIGNALED(status)) {
      return Error{ECHILD, "QEMU was ended by signal " + std::to_string(WTERMSIG(status))};
    }
    if (WEXITSTATUS(status) != 0) {
      return Error{ECHILD, "QEMU ended with status " + std::to_string(WEXITSTATUS(status))};
    }
    if (run_.command) return Error{ECONNRESET, "the guest powered off before its command ended"};
    return Done{};
  }

  void announce() {
    if (!run_.announces || announced_ || !relay_.is_up()) return;
    std::printf("guest %s is up\n", run_.options.name.c_str());
    std::fflush(stdout);
    announced_ = true;
  }

  bool has_panicked() {
    if (run_.console != Console::kFile) return false;
    std::error_code error;
    const auto size = std::filesystem::file_size(paths_.console, error);
    if (error || size == console_size_) return false;
    console_size_ = size;
    return file_text(paths_.console).find(kPanic) != std::string::npos;
  }

  const GuestRun& run_;
  const GuestPaths& paths_;
  int signals_;
  QemuProcess& qemu_;
  CommandRelay& relay_;
  bool announced_ = false;
  std::uintmax_t console_size_ = 0;
};

Result<Done> attach_hcas(const Options& options) {
  emulator::AttachOptions attach;
  attach.mapped_uars = options.mapped_uars;
  attach.blue_flame = options.blue_flame;
  attach.persistent = true;  // QEMU may unplug and plug; the guardian detaches
  for (unsigned i = 0; i < options.hcas; ++i) {
    if (auto done = emulator::attach_host(options.fabric, hca_host(options.name, i), attach);
        !done) {
      return done;
    }
  }
  return Done{};
}

/// Boots and watches; everything but lock and guardian is gone afterwards.
Result<int> boot(const GuestRun& run, const GuestPaths& paths, int signals) {
  if (auto made = make_seed(run.options, paths.seed); !made) return made.error();
  if (auto attached = attach_hcas(run.options); !attached) return attached.error();
  auto relay = CommandRelay::create(paths);
  if (!relay) return relay.error();
  const TerminalState terminal;
  auto qemu = QemuProcess::start(run, paths);
  if (!qemu) return qemu.error();
  std::optional<CommandThread> command;
  if (run.command) command.emplace(paths.commands, *run.command);
  // The command's thread ends when its connection does: with the relay, at the latest.
  Result<Done> watched = Done{};
  {
    CommandRelay serving = std::move(*relay);
    Supervisor supervisor(run, paths, signals, *qemu, serving);
    watched = supervisor.watch(command ? command->fd() : -1);
    if (watched && command) return command->result();
  }
  if (watched) return 0;
  std::string message = watched.error().message;
  if (watched.error().code != EINTR) {
    message += last_lines("\nQEMU said:\n", file_text(paths.log));
    message += last_lines("\nthe guest's console says at last:\n", file_text(paths.console));
  }
  return Error{watched.error().code, message};
}

}  // namespace

Result<int> run_guest(const GuestRun& run) {
  const Options& options = run.options;
  const GuestPaths paths = guest_paths(options.fabric, options.name);
  if (auto made = runtime::make_fabric_folder(options.fabric); !made) return made.error();
  if (auto made = runtime::make_private_folder(paths.folder); !made) return made.error();
  auto lock = FileLock::try_acquire(paths.lock);
  if (!lock) {
    if (lock.error().code != EWOULDBLOCK) return lock.error();
    return Error{EBUSY, "a guest '" + options.name + "' runs in fabric " + options.fabric +
                            " already: choose another --name, or give it a command with --attach"};
  }
  auto guardian = Guardian::start(options);
  if (!guardian) return guardian.error();
  const UniqueFd signals = watch_signals();
  auto result = boot(run, paths, signals.get());
  if (!run.console_log.empty()) {
    std::error_code error;
    std::filesystem::copy_file(paths.console, run.console_log,
                               std::filesystem::copy_options::overwrite_existing, error);
  }
  guardian->finish();
  return result;
}

}  // namespace softhca::vm
