// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <span>

/// Which inputs of uverbs commands are file descriptors: the preload sends them as SCM_RIGHTS
/// (after the reply descriptor, in the order in which they occur), the daemon takes them in the
/// same order. One table for both.
namespace softhca::shim {

/// Input descriptor attribute of an ioctl method. The attribute's data holds the number; one that
/// is absent from the request brings no descriptor. A number that is not open fails in the preload
/// with EBADF.
struct FdAttribute {
  std::uint16_t object;
  std::uint16_t method;
  std::uint16_t attribute;
};

inline constexpr FdAttribute kFdAttributes[] = {
    {3, 0, 3},    // CQ_CREATE: COMP_CHANNEL
    {3, 0, 7},    // CQ_CREATE: EVENT_FD
    {4, 0, 0xc},  // QP_CREATE: EVENT_FD
    {5, 0, 0xa},  // SRQ_CREATE: EVENT_FD
    {12, 0, 5},   // WQ_CREATE: EVENT_FD
    {7, 4, 5},    // REG_DMABUF_MR: FD
};

constexpr bool is_fd_attribute(std::uint16_t object, std::uint16_t method,
                               std::uint16_t attribute) {
  for (const FdAttribute& row : kFdAttributes) {
    if (row.object == object && row.method == method && row.attribute == attribute) return true;
  }
  return false;
}

/// Descriptor number (s32) inside the core structure of a write-style command, whether it comes by
/// write(2) or by INVOKE_WRITE: `offset` bytes from the start of the structure that ib_user_verbs.h
/// declares (legacy ones begin with their response field). A negative number brings no descriptor.
struct FdInCore {
  std::uint32_t command;  ///< With IB_USER_VERBS_CMD_FLAG_EXTENDED where it applies.
  std::uint32_t offset;
};

inline constexpr FdInCore kFdsInCore[] = {
    {18, 24},                // CREATE_CQ: comp_channel
    {0x80000000U | 18, 16},  // extended CREATE_CQ: comp_channel
    {37, 8},                 // OPEN_XRCD: fd
};

/// Offset of the descriptor number in `command`'s core structure, or -1.
constexpr std::int32_t fd_offset_in_core(std::uint32_t command) {
  for (const FdInCore& row : kFdsInCore) {
    if (row.command == command) return static_cast<std::int32_t>(row.offset);
  }
  return -1;
}

}  // namespace softhca::shim
