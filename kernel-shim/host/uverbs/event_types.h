// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>

namespace softhca::shim {

/// Values of ib_uverbs_async_event_desc.event_type (enum ib_event_type, rdma/ib_verbs.h).
inline constexpr std::uint32_t kEventCqError = 0;
inline constexpr std::uint32_t kEventQpFatal = 1;
inline constexpr std::uint32_t kEventQpRequestError = 2;
inline constexpr std::uint32_t kEventQpAccessError = 3;
inline constexpr std::uint32_t kEventCommunicationEstablished = 4;
inline constexpr std::uint32_t kEventSqDrained = 5;
inline constexpr std::uint32_t kEventPathMigrated = 6;
inline constexpr std::uint32_t kEventPathMigrationError = 7;
inline constexpr std::uint32_t kEventDeviceFatal = 8;
inline constexpr std::uint32_t kEventPortActive = 9;
inline constexpr std::uint32_t kEventPortError = 10;
inline constexpr std::uint32_t kEventLidChange = 11;
inline constexpr std::uint32_t kEventPkeyChange = 12;
inline constexpr std::uint32_t kEventSmChange = 13;
inline constexpr std::uint32_t kEventSrqError = 14;
inline constexpr std::uint32_t kEventSrqLimitReached = 15;
inline constexpr std::uint32_t kEventQpLastWqeReached = 16;
inline constexpr std::uint32_t kEventClientReregister = 17;
inline constexpr std::uint32_t kEventGidChange = 18;
inline constexpr std::uint32_t kNoEvent = 0xffffffff;

}  // namespace softhca::shim
