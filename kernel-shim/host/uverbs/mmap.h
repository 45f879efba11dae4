// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include "emulator/runtime/unique_fd.h"
#include "kernel-shim/host/uverbs/context.h"
#include "kernel-shim/protocol/protocol.h"

namespace softhca::shim {

/// mmap offset of the n-th dynamic UAR of a context: command 9 and an extended index (mlx5_ib's
/// mlx5_entry_to_mmap_offset).
constexpr std::uint64_t uar_mmap_offset(std::uint32_t n) {
  return ((n >> 8 & 0xff) << 16 | 9U << 8 | (n & 0xff)) * std::uint64_t{4096};
}

/// Command and index in an mmap offset (mlx5_ib's get_command, get_index).
constexpr std::uint64_t mmap_command(std::uint64_t offset) {
  return offset / 4096 >> 8 & 0xff;
}
constexpr std::uint64_t mmap_index(std::uint64_t offset) {
  return offset / 4096 & 0xff;
}

/// mmap() of the command descriptor: the descriptor and offset to map instead. 0 or an errno
/// (EINVAL: nothing there; EOPNOTSUPP: the device does not let it be mapped; EPERM: not with these
/// rights).
int serve_mmap(Context& context, const MmapBody& request, MmapReply& reply, runtime::UniqueFd& fd);

}  // namespace softhca::shim
