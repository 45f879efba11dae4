// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>

#include "emulator/vfio-user/client.h"
#include "emulator/vfio-user/message_io.h"

namespace softhca::vfio_user {

/// close-on-exec duplicate, empty (and errno) on failure.
FileDescriptor duplicate(int fd);

/// The client's end of the socket: one command at a time, with a time limit, while requests of the
/// server for memory are answered in between. Broken for good after the first error that leaves the
/// stream unclear.
class ClientChannel {
 public:
  ClientChannel(FileDescriptor socket, const ClientOptions& options);

  int fd() const { return socket_.get(); }

  /// Sends a command and waits for its reply. `reply.body` is valid until the next call.
  Status exchange(Command command, std::span<const std::byte> body, std::span<const std::byte> data,
                  std::span<const int> fds, Message& reply);
  /// Sends a command that gets no reply.
  Status post(Command command, std::span<const std::byte> body, std::span<const std::byte> data);
  /// Sends a command whose reply settle() waits for.
  Status start(Command command, std::span<const std::byte> body, std::span<const int> fds);
  /// Waits for the replies to all that was started. Refusals are for settle() to tell.
  Status await_started();
  /// The same; the first refusal among all since the last call.
  Status settle();
  bool has_started() const { return !started_.empty(); }
  /// Answers what the server has asked so far.
  Status serve();
  /// Shuts the connection down and returns `error`.
  Error fail(Error error);

 private:
  using Clock = std::chrono::steady_clock;

  Status send(const Header& header, std::span<const std::byte> body,
              std::span<const std::byte> data, std::span<const int> fds,
              Clock::time_point deadline);
  Status flush(Clock::time_point deadline);
  Status wait(short events, Clock::time_point deadline);
  /// Waits for more input.
  Status fill(Clock::time_point deadline);
  /// True if the reply is to the first command of those that were started.
  bool takes_started(const Message& reply);
  /// Handles a message that is a command of the server.
  Status answer(const Message& message, Clock::time_point deadline);

  FileDescriptor socket_;
  ClientOptions options_;
  MessageReader reader_;
  MessageWriter writer_;
  std::vector<std::byte> answer_data_;
  struct Started {
    std::uint16_t id = 0;
    Command command{};
  };
  std::deque<Started> started_;  ///< Without a reply so far, in order.
  Status outcome_;               ///< Of those that had theirs.
  std::uint16_t next_id_ = 0;
  bool broken_ = false;
};

}  // namespace softhca::vfio_user
