// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/preload/mkey_state_memory.h"

#include <cerrno>

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernel-shim/preload/commands.h"
#include "kernel-shim/preload/errno_guard.h"
#include "kernel-shim/preload/reply_items.h"
#include "kernel-shim/preload/transaction.h"

namespace softhca::shim::preload {
namespace {

void* map_area(int fd, std::uint64_t length, std::uint64_t offset) {
  void* const mapped = command_mmap(fd, nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED,
                                    static_cast<off_t>(offset));
  if (mapped == MAP_FAILED) return nullptr;
  // A child has no say in what keys of its parent do.
  ::syscall(SYS_madvise, mapped, length, MADV_DONTFORK);
  return mapped;
}

void unmap_area(void* mapped, std::uint64_t length) {
  if (mapped != nullptr) ::syscall(SYS_munmap, mapped, length);
}

/// The answer to DEREG_MR stores nothing.
struct NoOutputs {
  int store_bytes(const ReplyItem&, const void*) { return EIO; }
  int store_attribute(const ReplyItem&, std::uint64_t) { return EIO; }
  int store_fd_in_bytes(const ReplyItem&, std::uint32_t) { return EIO; }
};

}  // namespace

MkeyStateChanger map_mkey_states(int fd) {
  const ErrnoGuard errno_guard;
  void* const page = map_area(fd, MkeyStatePage::kAlignment, kMkeyStatesMmapOffset);
  void* const hints =
      page != nullptr ? map_area(fd, kDoorbellHintsSize, kHintsMmapOffset) : nullptr;
  if (hints == nullptr) {
    unmap_area(page, MkeyStatePage::kAlignment);
    return {};
  }
  return {static_cast<MkeyStatePage*>(page), static_cast<DoorbellHints*>(hints)};
}

void unmap_mkey_states(const MkeyStateChanger& changer) {
  const ErrnoGuard errno_guard;
  unmap_area(changer.page(), MkeyStatePage::kAlignment);
  unmap_area(changer.hints(), kDoorbellHintsSize);
}

void deregister_region(int fd, std::uint32_t handle) {
  /// ib_uverbs_cmd_hdr and ib_uverbs_dereg_mr.
  struct {
    std::uint32_t command = 13;
    std::uint16_t in_words = 3;
    std::uint16_t out_words = 0;
    std::uint32_t handle = 0;
  } call;
  call.handle = handle;
  Request request(RequestType::write);
  request.add(&call, sizeof(call));
  request.add_flags(kFlagGivesBack);
  Reply reply;
  if (transact(fd, request, reply) != 0) return;
  NoOutputs outputs;
  apply_items(reply, outputs);
}

}  // namespace softhca::shim::preload
