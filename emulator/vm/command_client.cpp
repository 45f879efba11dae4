// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/vm/command_client.h"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string_view>
#include <vector>

#include <poll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "emulator/vm/frame.h"

namespace softhca::vm {
namespace {

using runtime::Done;
using runtime::Error;
using runtime::Result;
using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kChannel = 1;
constexpr std::size_t kMaxWaiting = 256 * 1024;

Result<Done> write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(fd, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && errno == EAGAIN) {
      pollfd poll{fd, POLLOUT, 0};
      ::poll(&poll, 1, -1);
      continue;
    }
    if (put < 0) return runtime::system_error(errno, "writing the command's output");
    bytes.remove_prefix(static_cast<std::size_t>(put));
  }
  return Done{};
}

class CommandClient {
 public:
  CommandClient(int socket, const CommandRun& run) : socket_(socket), run_(run) {
    append_frame(to_guest_, FrameType::kRun, kChannel, run.command);
    if (::isatty(STDIN_FILENO) == 1) end_input();
  }

  Result<int> run() {
    while (true) {
      const auto left =
          run_.deadline == Clock::time_point::max()
              ? std::chrono::milliseconds(-1)
              : std::max(std::chrono::ceil<std::chrono::milliseconds>(run_.deadline - Clock::now()),
                         std::chrono::milliseconds(0));
      if (left.count() == 0) return Error{ETIMEDOUT, "the command took too long"};
      wait(static_cast<int>(std::min<std::int64_t>(left.count(), 1 << 30)));
      if (polled_[1].revents != 0) {
        if (auto received = receive(); !received) return received.error();
      }
      while (auto frame = reader_.next()) {
        if (frame->type == FrameType::kExit && frame->payload.size() == 1) {
          return static_cast<unsigned char>(frame->payload[0]);
        }
        if (auto handled = handle(*frame); !handled) return handled.error();
      }
      if (polled_[0].revents != 0) read_input();
      if (polled_[2].revents != 0) pass_signal();
      if (auto sent = send(); !sent) return sent.error();
    }
  }

 private:
  void wait(int timeout) {
    const bool reads_input = !input_ended_ && to_guest_.size() < kMaxWaiting;
    polled_ = {{reads_input ? STDIN_FILENO : -1, POLLIN, 0},
               {socket_, static_cast<short>(POLLIN | (to_guest_.empty() ? 0 : POLLOUT)), 0},
               {run_.signals, POLLIN, 0}};
    if (::poll(polled_.data(), polled_.size(), timeout) < 0) {
      for (pollfd& entry : polled_) entry.revents = 0;
    }
  }

  Result<Done> receive() {
    if ((polled_[1].revents & ~POLLOUT) == 0) return Done{};
    char buffer[65536];
    const ssize_t got = ::read(socket_, buffer, sizeof(buffer));
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return Done{};
    if (got <= 0) return Error{ECONNRESET, "the guest has ended"};
    reader_.append({buffer, static_cast<std::size_t>(got)});
    return Done{};
  }

  static Result<Done> handle(const Frame& frame) {
    switch (frame.type) {
      case FrameType::kOutput:
        return write_all(STDOUT_FILENO, frame.payload);
      case FrameType::kErrorOutput:
        return write_all(STDERR_FILENO, frame.payload);
      case FrameType::kLost:
        return Error{ECONNRESET, "the guest restarted"};
      default:
        return Done{};
    }
  }

  void read_input() {
    char buffer[kMaxPayload];
    const ssize_t got = ::read(STDIN_FILENO, buffer, sizeof(buffer));
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (got <= 0) return end_input();
    append_frame(to_guest_, FrameType::kInput, kChannel, {buffer, static_cast<std::size_t>(got)});
  }

  void end_input() {
    input_ended_ = true;
    append_frame(to_guest_, FrameType::kInput, kChannel);
  }

  void pass_signal() {
    signalfd_siginfo info{};
    if (::read(run_.signals, &info, sizeof(info)) != sizeof(info)) return;
    const char number = static_cast<char>(info.ssi_signo);
    append_frame(to_guest_, FrameType::kSignal, kChannel, {&number, 1});
  }

  Result<Done> send() {
    if ((polled_[1].revents & POLLOUT) == 0 || to_guest_.empty()) return Done{};
    const ssize_t put =
        ::send(socket_, to_guest_.data(), to_guest_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (put > 0) to_guest_.erase(0, static_cast<std::size_t>(put));
    if (put < 0 && errno != EINTR && errno != EAGAIN) {
      return Error{ECONNRESET, "the guest has ended"};
    }
    return Done{};
  }

  int socket_;
  const CommandRun& run_;
  std::vector<pollfd> polled_;
  bool input_ended_ = false;
  std::string to_guest_;
  FrameReader reader_;
};

}  // namespace

Result<int> run_command(int socket, const CommandRun& run) {
  if (run.command.size() > kMaxPayload) {
    return Error{E2BIG, "the command is longer than " + std::to_string(kMaxPayload) + " bytes"};
  }
  return CommandClient(socket, run).run();
}

}  // namespace softhca::vm
