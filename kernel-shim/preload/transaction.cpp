// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/preload/transaction.h"

#include <cerrno>

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernel-shim/preload/command_fd.h"
#include "kernel-shim/preload/errno_guard.h"
#include "kernel-shim/preload/shared_memory.h"
#include "kernel-shim/preload/shared_pieces.h"

namespace softhca::shim::preload {
namespace {

/// More ranges than any object has (buffer, doorbell record, second buffer).
constexpr std::size_t kMaxRanges = 64;
/// A daemon that asks for ever is broken.
constexpr int kMaxRounds = 4;

/// Shares what the reply asks for. 0, or why it cannot be.
int share_asked(const Reply& reply, SharedPieces& pieces) {
  ShareRange ranges[kMaxRanges];
  const std::size_t count = reply.body_length() / sizeof(ShareRange);
  if (count == 0 || count > kMaxRanges) return EIO;
  if (!reply.read(0, ranges, count * sizeof(ShareRange))) return EIO;
  return share_ranges(ranges, count, pieces);
}

/// This process's memory for the request, when the daemon has that of another one which opened the
/// command descriptor. Closes it at the end.
class OwnMemory {
 public:
  OwnMemory() = default;
  OwnMemory(const OwnMemory&) = delete;
  OwnMemory& operator=(const OwnMemory&) = delete;
  ~OwnMemory() {
    if (fd_ >= 0) ::syscall(SYS_close, fd_);
  }

  /// Adds it if it is needed. 0 or errno.
  int add_to(Request& request, int socket) {
    const bool names_memory =
        request.type() == RequestType::ioctl || request.type() == RequestType::write;
    if (!names_memory || opened_by_this_process(socket)) return 0;
    const ErrnoGuard errno_guard;
    fd_ = static_cast<int>(::syscall(SYS_openat, AT_FDCWD, "/proc/self/mem", O_RDWR | O_CLOEXEC));
    if (fd_ < 0) return errno;
    return request.add_fd(fd_) ? 0 : EINVAL;
  }
  std::uint32_t flag() const { return fd_ >= 0 ? kFlagOwnMemory : 0; }

 private:
  int fd_ = -1;
};

/// Tells the daemon which pages are shared; `pieces` null: none can be. 0 or errno.
int set_pieces(Request& request, const SharedPieces* pieces, std::uint32_t flags,
               bool& sends_memory) {
  const std::uint32_t count = pieces != nullptr ? pieces->count() : 0;
  if (pieces != nullptr && pieces->fresh_end() != 0) {
    request.set_meanwhile(fill_page_tables, pieces->fresh_begin(), pieces->fresh_end());
  }
  if (count != 0 && !sends_memory && !request.add_fd(shared_memory_fd())) return EINVAL;
  if (count == 0 && sends_memory) request.drop_fd();
  sends_memory = count != 0;
  if (count != 0) flags |= kFlagShared;
  if (count == 0 || !pieces->is_complete()) flags |= kFlagUnshared;
  request.set_whole(count == 1 && pieces->is_complete() ? *pieces->data() : SharedPiece{});
  request.set_flags(flags);
  return request.set_shared(count != 0 ? pieces->data() : nullptr, count) ? 0 : EMSGSIZE;
}

int transact_once(int socket, Request& request, Reply& reply) {
  OwnMemory own_memory;
  if (const int error = own_memory.add_to(request, socket)) return error;
  request.set_flags(own_memory.flag());
  bool sends_memory = false;
  SharedPieces pieces;
  // What cannot be shared is left to the daemon to judge.
  // Nor is it said that nothing can be: a device that takes shared memory alone wants heaps, too.
  if (request.expected_share().length != 0 &&
      share_ranges(&request.expected_share(), 1, pieces) == 0 && pieces.count() != 0) {
    if (const int error = set_pieces(request, &pieces, own_memory.flag(), sends_memory)) {
      return error;
    }
  }
  if (request.expected_share().length == 0) request.set_meanwhile(prepare_pages, 0, 0);
  for (int round = 0; round < kMaxRounds; ++round) {
    const int error = exchange(socket, request, reply);
    if (error != 0) return error;
    if (reply.status() == ReplyStatus::done) return 0;
    if (reply.status() != ReplyStatus::share) return EIO;
    const int share_error = share_asked(reply, pieces);
    if (share_error == EFAULT || share_error == EIO) return share_error;
    const int error_of_pieces =
        set_pieces(request, share_error == 0 ? &pieces : nullptr, own_memory.flag(), sends_memory);
    if (error_of_pieces != 0) return error_of_pieces;
  }
  return EIO;
}

}  // namespace

int transact(int socket, Request& request, Reply& reply) {
  const unsigned fds = request.fd_count();
  const int error = transact_once(socket, request, reply);
  // As it was, to be sent again.
  request.drop_fds(fds);
  request.set_shared(nullptr, 0);
  return error;
}

}  // namespace softhca::shim::preload
