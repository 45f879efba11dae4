// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <cstring>

#include "kernel-shim/protocol/protocol.h"

namespace softhca::shim::preload {

/// ib_uverbs_reg_mr, and its command number.
struct RegistrationCommand {
  static constexpr std::uint32_t kNumber = 9;
  std::uint64_t response;
  std::uint64_t start;
  std::uint64_t length;
  std::uint64_t hca_va;
  std::uint32_t pd_handle;
  std::uint32_t access_flags;
};
static_assert(sizeof(RegistrationCommand) == 40);

/// ib_uverbs_reg_mr_resp.
struct RegistrationAnswer {
  std::uint32_t mr_handle;
  std::uint32_t lkey;
  std::uint32_t rkey;
};
static_assert(sizeof(RegistrationAnswer) == 12);

/// The pages that the daemon asks for when it is given this command; length 0: none, the command is
/// for the daemon to refuse.
inline ShareRange pages_of(const RegistrationCommand& command) {
  constexpr std::uint64_t kPageMask = 4095;
  constexpr std::uint64_t kSensible = 1ULL << 47;
  ShareRange range;
  if (command.start >= kSensible || command.length == 0 || command.length >= kSensible)
    return range;
  range.address = command.start & ~kPageMask;
  range.length = ((command.start + command.length + kPageMask) & ~kPageMask) - range.address;
  range.flags = kShareInUse;
  if ((command.start & kPageMask) != 0) range.flags |= kSharePartOfFirst;
  if (((command.start + command.length) & kPageMask) != 0) range.flags |= kSharePartOfLast;
  return range;
}

}  // namespace softhca::shim::preload
