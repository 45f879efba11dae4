// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/host/server/packet.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace softhca::shim {
namespace {

/// Room for one descriptor more than allowed, so that too many are noticed and not just cut.
constexpr std::size_t kControlSize = CMSG_SPACE(sizeof(int) * (kMaxFds + 1));

std::vector<runtime::UniqueFd> take_fds(msghdr& message) {
  std::vector<runtime::UniqueFd> fds;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      fds.emplace_back(fd);
    }
  }
  return fds;
}

/// The pieces at the end of a body, which then ends before them.
std::vector<SharedPiece> take_pieces(std::span<const std::byte>& body, std::uint32_t count) {
  std::vector<SharedPiece> pieces(count);
  const std::size_t length = count * sizeof(SharedPiece);
  if (length != 0) std::memcpy(pieces.data(), body.last(length).data(), length);
  body = body.first(body.size() - length);
  return pieces;
}

/// 0, or why the packet is refused.
int check(const RequestHeader& header, std::size_t length, int message_flags,
          std::size_t fd_count) {
  if ((message_flags & MSG_TRUNC) != 0) return EMSGSIZE;
  if ((message_flags & MSG_CTRUNC) != 0 || fd_count > kMaxFds) return E2BIG;
  if (length < sizeof(RequestHeader)) return EINVAL;
  if (header.magic != kMagic) return EINVAL;
  if (header.version != kVersion) return EPROTO;
  if (header.body_length != length - sizeof(RequestHeader)) return EINVAL;
  if (header.pieces > kMaxPieces || header.pieces * sizeof(SharedPiece) > header.body_length) {
    return EINVAL;
  }
  return 0;
}

}  // namespace

ReceiveResult PacketReceiver::receive(int socket) {
  ReceiveResult result;
  alignas(cmsghdr) std::byte control[kControlSize];
  iovec piece{buffer_.data(), buffer_.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t length = 0;
  do {
    length = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  } while (length < 0 && errno == EINTR);
  if (length < 0) {
    result.what = errno == EAGAIN ? Received::nothing : Received::closed;
    return result;
  }
  std::vector<runtime::UniqueFd> fds = take_fds(message);
  if (length == 0) {
    result.what = Received::closed;
    return result;
  }
  Packet& packet = result.packet;
  const auto size = static_cast<std::size_t>(length);
  std::memcpy(static_cast<void*>(&packet.header), buffer_.data(),
              std::min(size, sizeof(packet.header)));
  result.error = check(packet.header, size, message.msg_flags, fds.size());
  result.what = result.error == 0 ? Received::packet : Received::refused;
  if (!fds.empty()) {
    packet.reply_fd = std::move(fds.front());
    fds.erase(fds.begin());
  }
  packet.fds = std::move(fds);
  if (result.error == 0) {
    packet.body = std::span(buffer_).subspan(sizeof(RequestHeader), packet.header.body_length);
    packet.pieces = take_pieces(packet.body, packet.header.pieces);
  }
  return result;
}

void send_reply(int fd, int error, const Reply& reply) {
  ReplyHeader header;
  header.error = error;
  std::span<const std::byte> body;
  std::size_t fd_count = 0;
  if (error == 0) {
    header.status = reply.status();
    header.items = reply.count();
    body = reply.body();
    fd_count = std::min<std::size_t>(reply.fds().size(), kMaxFds);
  }
  iovec pieces[2] = {{&header, sizeof(header)}, {const_cast<std::byte*>(body.data()), body.size()}};
  msghdr message{};
  message.msg_iov = pieces;
  message.msg_iovlen = body.empty() ? 1 : 2;
  alignas(cmsghdr) std::byte control[CMSG_SPACE(sizeof(int) * kMaxFds)] = {};
  if (fd_count != 0) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
    cmsghdr* const part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
    for (std::size_t i = 0; i < fd_count; ++i) {
      const int sent = reply.fds()[i].get();
      std::memcpy(CMSG_DATA(part) + i * sizeof(int), &sent, sizeof(int));
    }
  }
  while (::sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno == EINTR) {
  }
}

}  // namespace softhca::shim
