// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/preload/exchange.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernel-shim/preload/guarded_fds.h"
#include "kernel-shim/preload/lock.h"

namespace softhca::shim::preload {
namespace {

constexpr unsigned char kZeros[8] = {};

void close_end(int fd) {
  ::syscall(SYS_close, fd);
}

/// Makes a SOCK_SEQPACKET pair; 0 or errno.
int make_pair(int (&ends)[2]) {
  const long result = ::syscall(SYS_socketpair, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends);
  return result == 0 ? 0 : errno;
}

/// A pair put by for the moment when the application has used up its descriptors, so that
/// destroying objects still works then.
struct Reserve {
  Lock lock;
  GuardedFd ends[2];
  bool present;
};
Reserve reserve;

void drop_reserve() {
  if (!reserve.present) return;
  for (GuardedFd& end : reserve.ends) close_end(unguard(end));
  reserve.present = false;
}

void fill_reserve() {
  int ends[2];
  if (reserve.present || make_pair(ends) != 0) return;
  guard(reserve.ends[0], ends[0]);
  guard(reserve.ends[1], ends[1]);
  reserve.present = true;
}

/// A pair that is used again and again by whoever finds it free, since making one takes as long as
/// the daemon takes for a short command.
struct KeptPair {
  std::atomic<bool> taken;
  bool present;
  pid_t of;  // A child that was made without our fork handlers must leave it to its parent.
  GuardedFd ends[2];
};
KeptPair kept;

void drop_kept() {
  if (!kept.present) return;
  for (GuardedFd& end : kept.ends) {
    if (end.load() >= 0) close_end(unguard(end));
  }
  kept.present = false;
}

/// True: it is the caller's until give_kept().
bool take_kept() {
  if (kept.taken.exchange(true, std::memory_order_acquire)) return false;
  const pid_t own = ::getpid();
  if (kept.present && kept.of == own) return true;
  int ends[2];
  if (!kept.present && make_pair(ends) == 0) {
    guard(kept.ends[0], ends[0]);
    guard(kept.ends[1], ends[1]);
    kept.of = own;
    kept.present = true;
    return true;
  }
  kept.taken.store(false, std::memory_order_release);
  return false;
}

void give_kept() {
  kept.taken.store(false, std::memory_order_release);
}

constexpr int kForEver = -1;

/// Waits until the reply is there or cannot come any more. 0 or EIO; ETIME after `limit` ms.
int await_reply(int reply_fd, int socket, int limit = kForEver) {
  while (true) {
    pollfd polled[2] = {{reply_fd, POLLIN, 0}, {socket, 0, 0}};
    const int ready = ::poll(polled, 2, limit);
    if (ready < 0 && errno != EINTR) return EIO;
    if (ready == 0 && limit != kForEver) return ETIME;
    if (ready <= 0) continue;
    if (polled[0].revents != 0) return 0;
    // The daemon hung up; its last word may have arrived just before.
    pollfd last{reply_fd, POLLIN, 0};
    return ::poll(&last, 1, 0) == 1 ? 0 : EIO;
  }
}

}  // namespace

/// Fills in a message for the pieces and descriptors of a request.
class Sender {
 public:
  explicit Sender(Request& request) : request_(request) {
    request.header_.pid = ::getpid();
    request.header_.body_length = static_cast<std::uint32_t>(request.length_);
    request.pieces_[0] = {&request.header_, sizeof(request.header_)};
  }

  /// 0 or errno.
  int send(int socket, int reply_fd) {
    request_.fds_[0] = reply_fd;
    const std::size_t fd_bytes = request_.fd_count_ * sizeof(int);
    alignas(cmsghdr) unsigned char control[CMSG_SPACE(sizeof(int) * kMaxFds)] = {};
    msghdr message{};
    message.msg_iov = request_.pieces_;
    message.msg_iovlen = request_.piece_count_;
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fd_bytes);
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fd_bytes);
    std::memcpy(CMSG_DATA(rights), request_.fds_, fd_bytes);
    while (true) {
      if (::syscall(SYS_sendmsg, socket, &message, MSG_NOSIGNAL) >= 0) {
        request_.work_meanwhile();
        return 0;
      }
      switch (errno) {
        case EINTR:
          continue;
        case EAGAIN: {  // The application made the descriptor non-blocking.
          pollfd writable{socket, POLLOUT, 0};
          ::poll(&writable, 1, -1);
          continue;
        }
        case EPIPE:
        case ECONNRESET:
        case ENOTCONN:
          return EIO;
        default:
          return errno;
      }
    }
  }

 private:
  Request& request_;
};

bool Request::add(const void* data, std::size_t length) {
  if (length == 0) return true;
  if (piece_count_ == kMaxPieces || length > kMaxPacket - sizeof(header_) - length_) return false;
  pieces_[piece_count_++] = {const_cast<void*>(data), length};
  length_ += length;
  return true;
}

bool Request::set_shared(const SharedPiece* pieces, std::uint32_t count) {
  if (header_.pieces != 0) {
    length_ -= pieces_[--piece_count_].iov_len;
    header_.pieces = 0;
  }
  const std::size_t length = count * sizeof(SharedPiece);
  if (length > kMaxPacket - sizeof(header_) - length_) return false;
  if (length == 0) return true;
  pieces_[piece_count_++] = {const_cast<SharedPiece*>(pieces), length};
  length_ += length;
  header_.pieces = count;
  return true;
}

bool Request::pad() {
  return length_ % 8 == 0 || add(kZeros, 8 - length_ % 8);
}

bool Request::add_fd(int fd) {
  if (fd_count_ == kMaxFds) return false;
  fds_[fd_count_++] = fd;
  return true;
}

int Request::add_callers_fd(int fd) {
  // Checked here, because a number that is free may become our reply descriptor's.
  if (::fcntl(fd, F_GETFD) < 0) return EBADF;
  return add_fd(fd) ? 0 : EINVAL;
}

bool Reply::read(std::size_t offset, void* destination, std::size_t length) const {
  if (offset > body_length() || length > body_length() - offset) return false;
  std::memcpy(destination, body() + offset, length);
  return true;
}

int Reply::take_fd() {
  return fd_taken_ < fd_count_ ? fds_[fd_taken_++] : -1;
}

void Reply::clear() {
  while (fd_taken_ < fd_count_) close_end(fds_[fd_taken_++]);
  if (data_ != inline_) ::syscall(SYS_munmap, data_, length_);
  data_ = inline_;
  length_ = sizeof(ReplyHeader);
  fd_count_ = 0;
  fd_taken_ = 0;
}

/// Takes the packet that waits on `fd`. 0 or errno.
int Reply::receive(int fd) {
  ssize_t length = 0;
  do {
    length = ::recv(fd, nullptr, 0, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT);
  } while (length < 0 && errno == EINTR);
  if (length < static_cast<ssize_t>(sizeof(ReplyHeader)) ||
      length > 2 * static_cast<ssize_t>(kMaxPacket)) {
    return EIO;
  }
  length_ = static_cast<std::size_t>(length);
  if (length_ > kInline) {
    const long mapped = ::syscall(SYS_mmap, nullptr, length_, PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == -1) {
      length_ = sizeof(ReplyHeader);
      return ENOMEM;
    }
    data_ = reinterpret_cast<unsigned char*>(mapped);
  }
  alignas(cmsghdr) unsigned char control[CMSG_SPACE(sizeof(int) * kMaxFds)];
  iovec piece{data_, length_};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t received = 0;
  do {
    received = ::syscall(SYS_recvmsg, fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  } while (received < 0 && errno == EINTR);
  if (received != length) return EIO;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t bytes = part->cmsg_len - CMSG_LEN(0);
    fd_count_ = static_cast<unsigned>(bytes / sizeof(int));
    std::memcpy(fds_, CMSG_DATA(part), bytes);
  }
  std::memcpy(&header_, data_, sizeof(header_));
  if (header_.magic != kMagic) return EIO;
  // What the daemon sent did not fit into this process's descriptor table.
  return (message.msg_flags & MSG_CTRUNC) != 0 ? EMFILE : 0;
}

/// exchange() by the kept pair, which is taken.
int exchange_kept(int socket, Request& request, Reply& reply) {
  /// Longer than nearly all commands take.
  constexpr int kPatienceMs = 200;
  const int reply_fd = kept.ends[0].load(std::memory_order_relaxed);
  Sender sender(request);
  int error = sender.send(socket, kept.ends[1].load(std::memory_order_relaxed));
  if (error != 0) return error;
  error = await_reply(reply_fd, socket, kPatienceMs);
  const bool late = error == ETIME;
  if (late) {
    // A daemon that could not take our end, out of descriptors, does not answer: without our own
    // copy that shows as end of file.
    close_end(unguard(kept.ends[1]));
    error = await_reply(reply_fd, socket);
  }
  if (error == 0) error = reply.receive(reply_fd);
  if (late || error != 0) drop_kept();  // A late answer must not be taken for the next one's.
  return error;
}

int exchange(int socket, Request& request, Reply& reply) {
  const ErrnoGuard errno_guard;
  reply.clear();
  if (take_kept()) {
    const int error = exchange_kept(socket, request, reply);
    give_kept();
    if (error == 0 && request.header_.type == RequestType::hello) {
      const LockGuard guard(reserve.lock);
      fill_reserve();
    }
    return error;
  }
  Sender sender(request);
  int ends[2];
  int error = make_pair(ends);
  if (error == 0) {
    error = sender.send(socket, ends[1]);
    // With our copy closed, the daemon's death shows as end of file on the other end.
    close_end(ends[1]);
    if (error == 0) error = await_reply(ends[0], socket);
    if (error == 0) error = reply.receive(ends[0]);
    close_end(ends[0]);
    if (error == 0 && request.header_.type == RequestType::hello) {
      const LockGuard guard(reserve.lock);
      fill_reserve();
    }
    return error;
  }
  const LockGuard guard(reserve.lock);
  if (!reserve.present) return error;
  const int reply_fd = reserve.ends[0].load();
  error = sender.send(socket, reserve.ends[1].load());
  if (error == 0) error = await_reply(reply_fd, socket);
  if (error == 0) error = reply.receive(reply_fd);
  if (error == EIO) drop_reserve();  // A late answer must not be taken for the next one's.
  return error;
}

void forget_reply_descriptors() {
  drop_kept();
  give_kept();
  reserve.lock.reset();
  if (!reserve.present) return;
  drop_reserve();
  fill_reserve();
}

}  // namespace softhca::shim::preload
