// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause

/// The guest's process 1: runs the commands that come through the virtio-serial port and, if the
/// kernel command line says `softhca.console`, a login shell on the console. Called by the name of
/// `reboot` or `poweroff` it does that. Linked statically: it runs in any guest.

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/reboot.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "emulator/vm/frame.h"

namespace softhca::vm {
namespace {

/// No command's output is read while so much waits for the host.
constexpr std::size_t kMaxWaiting = 256 * 1024;

std::string read_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// Opens the port by its name; -1 if the guest has none.
int open_port() {
  constexpr char kPorts[] = "/sys/class/virtio-ports";
  int port = -1;
  DIR* folder = ::opendir(kPorts);
  if (folder == nullptr) return -1;
  while (const dirent* entry = ::readdir(folder)) {
    if (read_line(std::string(kPorts) + "/" + entry->d_name + "/name") != kPortName) continue;
    port = ::open((std::string("/dev/") + entry->d_name).c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
  }
  ::closedir(folder);
  return port;
}

void close_fd(int& fd) {
  if (fd >= 0) ::close(fd);
  fd = -1;
}

/// A command of the host.
struct Command {
  pid_t pid = -1;
  int input = -1;
  int output = -1;
  int error_output = -1;
  std::string waiting_input;
  bool input_ended = false;
  bool has_exited = false;
  unsigned char status = 0;
};

/// In a forked child: undoes what is process 1's own.
void become_ordinary() {
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
}

class Agent {
 public:
  Agent(int port, int signals) : port_(port), signals_(signals) {
    to_host_.assign(kResyncZeros, '\0');
    append_frame(to_host_, FrameType::kHello, 0);
  }

  [[noreturn]] void run(bool with_console) {
    if (with_console) start_console();
    while (true) serve_once();
  }

 private:
  struct Watched {
    std::uint32_t channel;
    int Command::*fd;
  };

  void start_console() {
    console_ = ::fork();
    if (console_ != 0) return;
    become_ordinary();
    ::setsid();
    const int terminal = ::open("/dev/console", O_RDWR);
    ::ioctl(terminal, TIOCSCTTY, 1);
    for (int fd = 0; fd < 3; ++fd) ::dup2(terminal, fd);
    ::execl("/bin/bash", "-bash", nullptr);
    ::_exit(127);
  }

  void serve_once() {
    std::vector<pollfd> polled;
    std::vector<Watched> watched;
    if (port_ >= 0) {
      const short writing = to_host_.empty() ? 0 : POLLOUT;
      polled.push_back({port_, static_cast<short>(POLLIN | writing), 0});
    }
    polled.push_back({signals_, POLLIN, 0});
    const std::size_t first = polled.size();
    watch_commands(polled, watched);
    // Without a reader at the other end the port is always "hung up": then only time passes.
    if (::poll(polled.data(), polled.size(), hung_up_ ? 200 : -1) < 0 && errno != EINTR) return;
    if (port_ >= 0) serve_port(polled[0].revents);
    if ((polled[first - 1].revents & POLLIN) != 0) reap();
    for (std::size_t i = 0; i < watched.size(); ++i) {
      if (polled[first + i].revents != 0) serve_command(watched[i]);
    }
    finish_exited();
  }

  void watch_commands(std::vector<pollfd>& polled, std::vector<Watched>& watched) {
    for (auto& [channel, command] : commands_) {
      if (to_host_.size() < kMaxWaiting) {
        for (const auto fd : {&Command::output, &Command::error_output}) {
          if (command.*fd < 0) continue;
          polled.push_back({command.*fd, POLLIN, 0});
          watched.push_back({channel, fd});
        }
      }
      if (command.input >= 0 && !command.waiting_input.empty()) {
        polled.push_back({command.input, POLLOUT, 0});
        watched.push_back({channel, &Command::input});
      }
    }
  }

  void serve_port(short events) {
    hung_up_ = (events & POLLHUP) != 0;
    if (hung_up_) {
      ::usleep(100000);
      return;
    }
    char buffer[65536];
    if ((events & POLLIN) != 0) {
      const ssize_t got = ::read(port_, buffer, sizeof(buffer));
      if (got > 0) receive({buffer, static_cast<std::size_t>(got)});
    }
    if ((events & POLLOUT) != 0) {
      const ssize_t put = ::write(port_, to_host_.data(), std::min(to_host_.size(), kMaxPayload));
      if (put > 0) to_host_.erase(0, static_cast<std::size_t>(put));
    }
  }

  void receive(std::string_view bytes) {
    if (!in_step_) {
      unsynced_.append(bytes);
      const auto mark = unsynced_.find(kSyncMark);
      if (mark == std::string::npos) {
        if (unsynced_.size() > kSyncMark.size()) {
          unsynced_.erase(0, unsynced_.size() - kSyncMark.size());
        }
        return;
      }
      in_step_ = true;
      reader_.append(std::string_view(unsynced_).substr(mark + kSyncMark.size()));
      unsynced_.clear();
    } else {
      reader_.append(bytes);
    }
    while (auto frame = reader_.next()) handle(*frame);
  }

  void handle(const Frame& frame) {
    if (frame.type == FrameType::kRun) {
      start(frame.channel, frame.payload);
      return;
    }
    const auto found = commands_.find(frame.channel);
    if (found == commands_.end()) return;
    Command& command = found->second;
    if (frame.type == FrameType::kInput) {
      command.waiting_input += frame.payload;
      command.input_ended = command.input_ended || frame.payload.empty();
      feed(command);
    } else if (frame.type == FrameType::kSignal && frame.payload.size() == 1 &&
               !command.has_exited) {
      ::kill(-command.pid, frame.payload[0]);
    }
  }

  void start(std::uint32_t channel, const std::string& text) {
    int in[2];
    int out[2];
    int err[2];
    if (commands_.count(channel) != 0 || ::pipe2(in, O_CLOEXEC) != 0 ||
        ::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(err, O_CLOEXEC) != 0) {
      const char failed = 126;
      append_frame(to_host_, FrameType::kExit, channel, {&failed, 1});
      return;
    }
    Command command;
    command.pid = ::fork();
    if (command.pid == 0) {
      become_ordinary();
      ::setsid();
      ::dup2(in[0], STDIN_FILENO);
      ::dup2(out[1], STDOUT_FILENO);
      ::dup2(err[1], STDERR_FILENO);
      ::execl("/bin/bash", "bash", "-c", text.c_str(), nullptr);
      ::_exit(127);
    }
    ::close(in[0]);
    ::close(out[1]);
    ::close(err[1]);
    command.input = in[1];
    command.output = out[0];
    command.error_output = err[0];
    for (const int fd : {in[1], out[0], err[0]}) ::fcntl(fd, F_SETFL, O_NONBLOCK);
    commands_.emplace(channel, std::move(command));
  }

  static void feed(Command& command) {
    while (command.input >= 0 && !command.waiting_input.empty()) {
      const ssize_t put =
          ::write(command.input, command.waiting_input.data(), command.waiting_input.size());
      if (put < 0) {
        if (errno != EAGAIN) close_fd(command.input);
        break;
      }
      command.waiting_input.erase(0, static_cast<std::size_t>(put));
    }
    if (command.waiting_input.empty() && command.input_ended) close_fd(command.input);
  }

  void serve_command(const Watched& watched) {
    Command& command = commands_.at(watched.channel);
    if (watched.fd == &Command::input) {
      feed(command);
    } else if (command.*watched.fd >= 0) {
      forward(watched.channel, command.*watched.fd,
              watched.fd == &Command::output ? FrameType::kOutput : FrameType::kErrorOutput);
    }
  }

  /// One piece of a command's output. False: nothing more now.
  bool forward(std::uint32_t channel, int& fd, FrameType type) {
    char buffer[kMaxPayload];
    const ssize_t got = ::read(fd, buffer, sizeof(buffer));
    if (got > 0) {
      append_frame(to_host_, type, channel, {buffer, static_cast<std::size_t>(got)});
      return true;
    }
    if (got == 0 || errno != EAGAIN) close_fd(fd);
    return false;
  }

  void reap() {
    signalfd_siginfo info{};
    [[maybe_unused]] const ssize_t got = ::read(signals_, &info, sizeof(info));
    int status = 0;
    for (pid_t pid = ::waitpid(-1, &status, WNOHANG); pid > 0;
         pid = ::waitpid(-1, &status, WNOHANG)) {
      if (pid == console_) power(RB_POWER_OFF);
      for (auto& [channel, command] : commands_) {
        if (command.pid != pid) continue;
        command.has_exited = true;
        command.status = static_cast<unsigned char>(WIFEXITED(status) ? WEXITSTATUS(status)
                                                                      : 128 + WTERMSIG(status));
      }
    }
  }

  /// What a command wrote before it ended comes before its status; what its children keep open
  /// does not hold the status back.
  void finish_exited() {
    for (auto entry = commands_.begin(); entry != commands_.end();) {
      auto& [channel, command] = *entry;
      if (!command.has_exited || to_host_.size() >= kMaxWaiting) {
        ++entry;
        continue;
      }
      bool more = false;
      if (command.output >= 0) more |= forward(channel, command.output, FrameType::kOutput);
      if (command.error_output >= 0) {
        more |= forward(channel, command.error_output, FrameType::kErrorOutput);
      }
      if (more) continue;
      const char status = static_cast<char>(command.status);
      append_frame(to_host_, FrameType::kExit, channel, {&status, 1});
      for (int* fd : {&command.input, &command.output, &command.error_output}) close_fd(*fd);
      entry = commands_.erase(entry);
    }
  }

 public:
  /// Ends all processes, then the machine; by the kernel's ordinary way, which tells the drivers.
  [[noreturn]] static void power(int how) {
    ::kill(-1, SIGTERM);
    ::usleep(200000);
    ::kill(-1, SIGKILL);
    ::sync();
    ::reboot(how);
    while (true) ::pause();
  }

 private:
  int port_;
  int signals_;
  pid_t console_ = -1;
  bool in_step_ = false;
  bool hung_up_ = false;
  std::string unsynced_;
  FrameReader reader_;
  std::string to_host_;
  std::map<std::uint32_t, Command> commands_;
};

/// As `reboot` or `poweroff`: process 1 kills everything, so it must be process 1 that is asked.
int ask_for_power(std::string_view name) {
  return ::kill(1, name == "reboot" ? SIGHUP : SIGUSR2);
}

void on_power_signal(int signal) {
  Agent::power(signal == SIGHUP ? RB_AUTOBOOT : RB_POWER_OFF);
}

int be_process_one() {
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGHUP, on_power_signal);
  ::signal(SIGUSR2, on_power_signal);
  sigset_t children;
  ::sigemptyset(&children);
  ::sigaddset(&children, SIGCHLD);
  ::sigprocmask(SIG_BLOCK, &children, nullptr);
  const int signals = ::signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
  std::ifstream file("/proc/cmdline");
  const std::string command_line((std::istreambuf_iterator<char>(file)), {});
  Agent agent(open_port(), signals);
  agent.run(command_line.find("softhca.console") != std::string::npos);
}

}  // namespace
}  // namespace softhca::vm

int main(int, char** argv) {
  const std::string_view path = argv[0];
  const std::string_view name = path.substr(path.rfind('/') + 1);
  if (name == "reboot" || name == "poweroff") return softhca::vm::ask_for_power(name);
  return softhca::vm::be_process_one();
}
