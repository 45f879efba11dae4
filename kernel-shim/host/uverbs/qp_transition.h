// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <optional>

#include "hw-model/prm/opcodes.h"

namespace softhca::shim {

/// enum ib_qp_state (ib_verbs.h).
enum class IbQpState : std::uint8_t { reset = 0, init, rtr, rts, sqd, sqe, error };

/// Bits of attr_mask (enum ib_qp_attr_mask).
namespace qp_attr {
inline constexpr std::uint32_t kState = 1U << 0;
inline constexpr std::uint32_t kCurState = 1U << 1;
inline constexpr std::uint32_t kEnSqdAsyncNotify = 1U << 2;
inline constexpr std::uint32_t kAccessFlags = 1U << 3;
inline constexpr std::uint32_t kPkeyIndex = 1U << 4;
inline constexpr std::uint32_t kPort = 1U << 5;
inline constexpr std::uint32_t kQkey = 1U << 6;
inline constexpr std::uint32_t kAv = 1U << 7;
inline constexpr std::uint32_t kPathMtu = 1U << 8;
inline constexpr std::uint32_t kTimeout = 1U << 9;
inline constexpr std::uint32_t kRetryCnt = 1U << 10;
inline constexpr std::uint32_t kRnrRetry = 1U << 11;
inline constexpr std::uint32_t kRqPsn = 1U << 12;
inline constexpr std::uint32_t kMaxQpRdAtomic = 1U << 13;
inline constexpr std::uint32_t kAltPath = 1U << 14;
inline constexpr std::uint32_t kMinRnrTimer = 1U << 15;
inline constexpr std::uint32_t kSqPsn = 1U << 16;
inline constexpr std::uint32_t kMaxDestRdAtomic = 1U << 17;
inline constexpr std::uint32_t kPathMigState = 1U << 18;
inline constexpr std::uint32_t kCap = 1U << 19;
inline constexpr std::uint32_t kDestQpn = 1U << 20;
inline constexpr std::uint32_t kStandard = (1U << 21) - 1;
inline constexpr std::uint32_t kRateLimit = 1U << 25;
}  // namespace qp_attr

/// True if a QP of `type` (ib_uverbs_qp_type) may go from `from` to `to` with these attributes: all
/// required ones, no others (IBA table 88 as ib_modify_qp_is_ok has it).
bool qp_transition_allowed(IbQpState from, IbQpState to, std::uint8_t type, std::uint32_t mask);

/// Firmware command of a transition; empty if the device has none.
std::optional<prm::CommandOpcode> qp_transition_opcode(IbQpState from, IbQpState to);

/// opt_param_mask for the attributes given: what mlx5_ib lets change in this transition.
std::uint32_t qp_optional_params(IbQpState from, IbQpState to, std::uint8_t type,
                                 std::uint32_t mask);

}  // namespace softhca::shim
