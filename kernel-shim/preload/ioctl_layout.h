// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>

#include <sys/ioctl.h>

namespace softhca::shim::preload {

/// ib_uverbs_ioctl_hdr (include/uapi/rdma/rdma_user_ioctl_cmds.h); attributes follow.
struct IoctlHeader {
  std::uint16_t length;  ///< Of the header and its attributes.
  std::uint16_t object_id;
  std::uint16_t method_id;
  std::uint16_t num_attrs;
  std::uint64_t reserved1;
  std::uint32_t driver_id;
  std::uint32_t reserved2;
};
static_assert(sizeof(IoctlHeader) == 24);

/// ib_uverbs_attr.
struct IoctlAttribute {
  std::uint16_t attr_id;
  std::uint16_t len;  ///< Inputs of at most 8 bytes lie in `data`, all else is where it points.
  std::uint16_t flags;
  std::uint16_t attr_data;
  std::uint64_t data;
};
static_assert(sizeof(IoctlAttribute) == 16);

/// UVERBS_ATTR_F_VALID_OUTPUT
inline constexpr std::uint16_t kValidOutput = 2;

inline constexpr unsigned kRdmaIoctlType = 0x1b;
/// RDMA_VERBS_IOCTL
inline constexpr unsigned long kVerbsIoctl = _IOWR(kRdmaIoctlType, 1, IoctlHeader);

}  // namespace softhca::shim::preload
