// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "emulator/vfio-user/file_descriptor.h"
#include "emulator/vfio-user/protocol.h"

namespace softhca::vfio_user {

/// One message as it arrived. `body` is valid until the next call of the reader that gave it.
struct Message {
  Header header;
  std::span<const std::byte> body;
  std::vector<FileDescriptor> fds;
  /// More descriptors came than are taken or than this process may open; all of them were closed.
  bool fds_lost = false;
};

/// Cuts a byte stream with descriptors into messages. Both sides send a message's descriptors with
/// its first bytes, and the kernel ends a read at the data that carried descriptors: they belong to
/// the message that holds the last byte of that read.
class MessageReader {
 public:
  explicit MessageReader(std::uint64_t max_message_size);

  enum class Fill : std::uint8_t { data, would_block, closed, failed };
  /// One read, non-blocking. `failed` leaves errno.
  Fill fill(int socket);
  /// Bytes that fill() has read so far.
  std::uint64_t bytes_read() const { return position_ + (end_ - begin_); }
  /// The last fill() took less than it had room for, so that most likely nothing more is there: a
  /// read ends early only where descriptors begin.
  bool drained() const { return drained_; }

  /// `malformed`: the size in the header is impossible; `message.header` is set and the stream is
  /// lost.
  enum class Next : std::uint8_t { message, incomplete, malformed };
  Next next(Message& message);

 private:
  struct Arrival {
    std::uint64_t position = 0;  ///< Stream offset just behind the read that brought them.
    std::vector<FileDescriptor> fds;
    bool lost = false;
  };
  void take_arrivals(std::uint64_t end, Message& message);
  void make_room();

  std::uint64_t max_message_size_;
  std::vector<std::byte> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  bool drained_ = false;
  std::size_t wanted_ = 0;      ///< Size of the incomplete message at begin_, if known.
  std::uint64_t position_ = 0;  ///< Stream offset of buffer_[begin_].
  std::deque<Arrival> arrivals_;
};

/// Sends whole messages without blocking; what the socket does not take waits in a queue.
class MessageWriter {
 public:
  enum class Outcome : std::uint8_t { sent, queued, failed };
  /// Sends or queues header, body and data as one message (header.message_size is filled in).
  /// Descriptors are borrowed (duplicated if they must wait). `failed` leaves errno; the connection
  /// is then useless.
  Outcome send(int socket, Header header, std::span<const std::byte> body,
               std::span<const std::byte> data = {}, std::span<const int> fds = {});
  /// Sends what waits. `queued`: some still does.
  Outcome flush(int socket);
  std::size_t queued_bytes() const { return queued_bytes_; }

 private:
  struct Pending {
    std::vector<std::byte> bytes;
    std::size_t sent = 0;
    std::vector<FileDescriptor> fds;
  };
  std::deque<Pending> queue_;
  std::size_t queued_bytes_ = 0;
};

/// The bytes of a trivially copyable wire structure.
template <typename T>
std::span<const std::byte> wire_bytes(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

}  // namespace softhca::vfio_user
