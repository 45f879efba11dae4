// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/vfio-user/message_io.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace softhca::vfio_user {
namespace {

constexpr std::size_t kReadSize = 64U << 10;
constexpr std::size_t kKernelMaxFds = 253;  // SCM_MAX_FD

/// Takes every descriptor out of received ancillary data.
std::vector<FileDescriptor> received_fds(msghdr& message) {
  std::vector<FileDescriptor> fds;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
      fds.emplace_back(fd);
    }
  }
  return fds;
}

/// sendmsg of up to three pieces and some descriptors; -1 and errno on failure.
ssize_t send_pieces(int socket, std::span<iovec> pieces, std::span<const int> fds) {
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(kMaxMessageFds * sizeof(int))> control;
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  if (!fds.empty()) {
    if (fds.size() > kMaxMessageFds) {
      errno = EINVAL;
      return -1;
    }
    control.fill(std::byte{0});
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(c), fds.data(), fds.size_bytes());
  }
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent;
}

bool would_block() {
  return errno == EAGAIN || errno == EWOULDBLOCK;
}

}  // namespace

MessageReader::MessageReader(std::uint64_t max_message_size)
    : max_message_size_(max_message_size), buffer_(kReadSize) {}

void MessageReader::make_room() {
  const std::size_t held = end_ - begin_;
  const std::size_t needed = std::max(kReadSize, wanted_);
  if (begin_ == end_) begin_ = end_ = 0;
  if (buffer_.size() - begin_ >= needed && end_ < buffer_.size()) return;
  if (begin_ != 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, held);
    begin_ = 0;
    end_ = held;
  }
  if (buffer_.size() < needed) buffer_.resize(needed);
}

MessageReader::Fill MessageReader::fill(int socket) {
  make_room();
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(kKernelMaxFds * sizeof(int))> control;
  iovec piece{buffer_.data() + end_, buffer_.size() - end_};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t got = 0;
  do {
    got = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got < 0) return would_block() ? Fill::would_block : Fill::failed;
  std::vector<FileDescriptor> fds;
  if (message.msg_controllen != 0) fds = received_fds(message);
  if (got == 0) return Fill::closed;
  end_ += static_cast<std::size_t>(got);
  bool lost = (message.msg_flags & MSG_CTRUNC) != 0;
  drained_ = static_cast<std::size_t>(got) < piece.iov_len && fds.empty() && !lost;
  if (fds.empty() && !lost) return Fill::data;
  // Nothing limits how often an unfinished message brings descriptors: hold no more than one may
  // carry.
  std::size_t held_fds = fds.size();
  for (const Arrival& arrival : arrivals_) held_fds += arrival.fds.size();
  if (held_fds > kMaxMessageFds) {
    fds.clear();
    lost = true;
  }
  arrivals_.push_back({position_ + (end_ - begin_), std::move(fds), lost});
  return Fill::data;
}

void MessageReader::take_arrivals(std::uint64_t end, Message& message) {
  message.fds.clear();
  message.fds_lost = false;
  while (!arrivals_.empty() && arrivals_.front().position <= end) {
    Arrival& arrival = arrivals_.front();
    message.fds_lost |= arrival.lost;
    for (FileDescriptor& fd : arrival.fds) message.fds.push_back(std::move(fd));
    arrivals_.pop_front();
  }
  if (message.fds_lost) message.fds.clear();
}

MessageReader::Next MessageReader::next(Message& message) {
  const std::size_t held = end_ - begin_;
  wanted_ = 0;
  if (held < sizeof(Header)) return Next::incomplete;
  std::memcpy(&message.header, buffer_.data() + begin_, sizeof(Header));
  const std::size_t size = message.header.message_size;
  if (size < sizeof(Header) || size > max_message_size_) return Next::malformed;
  if (held < size) {
    wanted_ = size;
    if (arrivals_.size() > kMaxMessageFds) return Next::malformed;
    return Next::incomplete;
  }
  message.body = {buffer_.data() + begin_ + sizeof(Header), size - sizeof(Header)};
  begin_ += size;
  position_ += size;
  take_arrivals(position_, message);
  return Next::message;
}

MessageWriter::Outcome MessageWriter::send(int socket, Header header,
                                           std::span<const std::byte> body,
                                           std::span<const std::byte> data,
                                           std::span<const int> fds) {
  const std::size_t total = sizeof header + body.size() + data.size();
  header.message_size = static_cast<std::uint32_t>(total);
  std::array<std::span<const std::byte>, 3> parts{wire_bytes(header), body, data};
  std::size_t sent = 0;
  if (queue_.empty()) {
    std::array<iovec, 3> pieces;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      pieces[i] = {const_cast<std::byte*>(parts[i].data()), parts[i].size()};
    }
    const ssize_t result = send_pieces(socket, pieces, fds);
    if (result < 0 && !would_block()) return Outcome::failed;
    if (result > 0) sent = static_cast<std::size_t>(result);
    if (sent == total) return Outcome::sent;
  }
  Pending pending;
  pending.bytes.reserve(total);
  for (const auto& part : parts)
    pending.bytes.insert(pending.bytes.end(), part.begin(), part.end());
  pending.sent = sent;
  if (sent == 0) {
    for (const int fd : fds) {
      pending.fds.emplace_back(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
      if (!pending.fds.back()) return Outcome::failed;
    }
  }
  queued_bytes_ += total - sent;
  queue_.push_back(std::move(pending));
  return Outcome::queued;
}

MessageWriter::Outcome MessageWriter::flush(int socket) {
  while (!queue_.empty()) {
    Pending& pending = queue_.front();
    std::array<int, kMaxMessageFds> fds;
    const std::size_t fd_count = std::min(pending.fds.size(), fds.size());
    for (std::size_t i = 0; i < fd_count; ++i) fds[i] = pending.fds[i].get();
    iovec piece{pending.bytes.data() + pending.sent, pending.bytes.size() - pending.sent};
    const ssize_t result = send_pieces(socket, {&piece, 1}, std::span(fds).first(fd_count));
    if (result < 0) return would_block() ? Outcome::queued : Outcome::failed;
    pending.fds.clear();
    pending.sent += static_cast<std::size_t>(result);
    queued_bytes_ -= static_cast<std::size_t>(result);
    if (pending.sent == pending.bytes.size()) queue_.pop_front();
  }
  return Outcome::sent;
}

}  // namespace softhca::vfio_user
