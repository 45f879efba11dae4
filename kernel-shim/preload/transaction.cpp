// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/preload/transaction.h"

#include <cerrno>

#include "kernel-shim/preload/shared_memory.h"

namespace softhca::shim::preload {
namespace {

/// More ranges than any object has (buffer, doorbell record, second buffer).
constexpr std::size_t kMaxRanges = 64;
/// A daemon that asks for ever is broken.
constexpr int kMaxRounds = 4;

/// Shares what the reply asks for. 0, or why it cannot be.
int share_asked(const Reply& reply) {
  ShareRange ranges[kMaxRanges];
  const std::size_t count = reply.body_length() / sizeof(ShareRange);
  if (count == 0 || count > kMaxRanges) return EIO;
  if (!reply.read(0, ranges, count * sizeof(ShareRange))) return EIO;
  return share_ranges(ranges, count);
}

}  // namespace

int transact(int socket, Request& request, Reply& reply) {
  bool sends_memory = false;
  for (int round = 0; round < kMaxRounds; ++round) {
    const int error = exchange(socket, request, reply);
    if (error != 0) return error;
    if (reply.status() == ReplyStatus::done) return 0;
    if (reply.status() != ReplyStatus::share) return EIO;
    const int share_error = share_asked(reply);
    if (share_error == EFAULT || share_error == EIO) return share_error;
    if (share_error == 0 && !sends_memory) {
      if (!request.add_fd(shared_memory_fd())) return EINVAL;
      sends_memory = true;
    }
    request.set_flags(share_error == 0 ? kFlagShared : kFlagUnshared);
  }
  return EIO;
}

}  // namespace softhca::shim::preload
