// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "emulator/runtime/unique_fd.h"
#include "kernel-shim/host/uverbs/reply.h"
#include "kernel-shim/protocol/protocol.h"

namespace softhca::shim {

/// One request as it came: checked header, body, and its descriptors.
struct Packet {
  RequestHeader header;
  std::span<const std::byte> body;     ///< Lies in the receiver's buffer.
  std::vector<SharedPiece> pieces;     ///< What stood at its end.
  runtime::UniqueFd reply_fd;          ///< First descriptor; may be missing.
  std::vector<runtime::UniqueFd> fds;  ///< The others.
};

enum class Received : std::uint8_t {
  packet,   ///< Well-formed.
  refused,  ///< Malformed: answer `error` on packet.reply_fd if it is there.
  nothing,  ///< None waits.
  closed,   ///< End of file or a dead socket.
};

struct ReceiveResult {
  Received what = Received::nothing;
  int error = 0;  ///< errno for a refused packet.
  Packet packet;
};

/// Takes packets from SOCK_SEQPACKET sockets. Holds the buffer that bodies lie in.
class PacketReceiver {
 public:
  PacketReceiver() : buffer_(kMaxPacket) {}
  ReceiveResult receive(int socket);

 private:
  std::vector<std::byte> buffer_;
};

/// Sends `error` or, if it is 0, the reply on `fd`, without waiting: who does not read its replies
/// loses them.
void send_reply(int fd, int error, const Reply& reply);

}  // namespace softhca::shim
