// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include <sys/uio.h>

#include "kernel-shim/protocol/protocol.h"

/// One request to the daemon and its reply.
namespace softhca::shim::preload {

/// A request under construction. The memory that it names is read by the kernel while it is sent:
/// a bad address makes exchange() answer EFAULT.
class Request {
 public:
  static constexpr unsigned kMaxPieces = 160;

  explicit Request(RequestType type) { header_.type = type; }

  /// Appends memory of the caller. False: too many pieces or too long for a packet.
  bool add(const void* data, std::size_t length);
  /// Appends zero bytes up to a multiple of 8 since the body's start.
  bool pad();
  /// Appends a descriptor, which stays the caller's. False: too many.
  bool add_fd(int fd);
  /// Takes the last one off again.
  void drop_fd() { --fd_count_; }
  unsigned fd_count() const { return fd_count_; }
  /// Takes all off but the first so many.
  void drop_fds(unsigned count) { fd_count_ = count; }
  /// Appends a descriptor that the application named. 0 or errno.
  int add_callers_fd(int fd);
  RequestType type() const { return header_.type; }
  /// Memory that the daemon is going to ask for: sharing it at once spares a round trip.
  void expect_share(const ShareRange& range) { expected_ = range; }
  const ShareRange& expected_share() const { return expected_; }
  /// Work for the time between the request and its reply, done once.
  void set_meanwhile(void (*work)(std::uint64_t, std::uint64_t), std::uint64_t begin,
                     std::uint64_t end) {
    meanwhile_ = {work, begin, end};
  }
  void set_flags(std::uint32_t flags) { header_.flags = flags | own_flags_; }
  /// Has these whatever set_flags() is given.
  void add_flags(std::uint32_t flags) { own_flags_ |= flags; }
  void set_mkey_state(std::uint32_t record) { header_.mkey_state = record; }
  std::uint32_t mkey_state() const { return header_.mkey_state; }
  /// The one piece of the memfd that all pages of a registration lie in; length 0: there is none.
  void set_whole(const SharedPiece& piece) { whole_ = piece; }
  const SharedPiece& whole() const { return whole_; }
  /// Gives the request these pieces at its end instead of those before. False: too long.
  bool set_shared(const SharedPiece* pieces, std::uint32_t count);

 private:
  friend int exchange(int socket, Request& request, class Reply& reply);
  friend int exchange_kept(int socket, Request& request, class Reply& reply);
  friend class Sender;

  void work_meanwhile() {
    if (meanwhile_.work != nullptr) meanwhile_.work(meanwhile_.begin, meanwhile_.end);
    meanwhile_.work = nullptr;
  }

  struct Meanwhile {
    void (*work)(std::uint64_t, std::uint64_t);
    std::uint64_t begin;
    std::uint64_t end;
  };

  RequestHeader header_{};
  Meanwhile meanwhile_{};
  std::uint32_t own_flags_ = 0;
  SharedPiece whole_{};
  ShareRange expected_{};         // Length 0: none.
  iovec pieces_[kMaxPieces + 1];  // The last one is for shared pages.
  unsigned piece_count_ = 1;      // [0] is the header.
  std::size_t length_ = 0;        // of the body
  int fds_[kMaxFds];
  unsigned fd_count_ = 1;  // [0] is the reply descriptor.
};

/// A reply; closes at the end what nobody took.
class Reply {
 public:
  Reply() = default;
  Reply(const Reply&) = delete;
  Reply& operator=(const Reply&) = delete;
  ~Reply() { clear(); }

  ReplyStatus status() const { return header_.status; }
  int error() const { return header_.error; }
  std::uint32_t items() const { return header_.items; }
  /// The body without the header.
  std::size_t body_length() const { return length_ - sizeof(ReplyHeader); }
  const unsigned char* body() const { return data_ + sizeof(ReplyHeader); }
  /// Copies from the body; false if it is not that long.
  bool read(std::size_t offset, void* destination, std::size_t length) const;

  /// The next descriptor, now the caller's (close-on-exec is set); -1 if there is none left.
  int take_fd();

 private:
  friend int exchange(int socket, Request& request, Reply& reply);
  friend int exchange_kept(int socket, Request& request, Reply& reply);

  int receive(int fd);
  void clear();

  static constexpr std::size_t kInline = 8192;

  ReplyHeader header_{};
  std::size_t length_ = sizeof(ReplyHeader);
  unsigned char* data_ = inline_;
  int fds_[kMaxFds];
  unsigned fd_count_ = 0;
  unsigned fd_taken_ = 0;
  alignas(8) unsigned char inline_[kInline];
};

/// Sends the request on a command descriptor and waits for the reply. 0, or an errno: EIO when the
/// daemon is gone or answers nonsense, EFAULT for memory that cannot be read, EBADF for a
/// descriptor in the request that is not open, EMFILE. May be called again with the same request.
/// Never waits for a dead daemon. Not interrupted by signals, as the kernel's commands are not.
int exchange(int socket, Request& request, Reply& reply);

/// After fork(), in the child: the parent's reply descriptors are not ours.
void forget_reply_descriptors();

}  // namespace softhca::shim::preload
