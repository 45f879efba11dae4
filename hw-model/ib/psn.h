// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>

namespace softhca::ib {

/// Packet sequence numbers (and message sequence numbers) count modulo 2^24 (IBA 9.7.1). These
/// functions take and return values in 0..2^24-1; bits above are ignored on input.
inline constexpr std::uint32_t kPsnMask = 0xffffff;
/// Half of the number space: a PSN up to this far behind the expected one is a duplicate, anything
/// else is ahead (IBA 9.7.4.1.3).
inline constexpr std::uint32_t kPsnHalf = 0x800000;

/// `psn` moved forward by `count`.
constexpr std::uint32_t psn_add(std::uint32_t psn, std::uint32_t count) {
  return (psn + count) & kPsnMask;
}

/// Signed distance from `b` to `a`, in -2^23 .. 2^23-1.
constexpr std::int32_t psn_diff(std::uint32_t a, std::uint32_t b) {
  const std::uint32_t distance = (a - b) & kPsnMask;
  return distance < kPsnHalf ? static_cast<std::int32_t>(distance)
                             : static_cast<std::int32_t>(distance) - 0x1000000;
}

/// `a` comes before `b` in sequence order.
constexpr bool psn_before(std::uint32_t a, std::uint32_t b) {
  return psn_diff(a, b) < 0;
}
/// `a` comes after `b` in sequence order.
constexpr bool psn_after(std::uint32_t a, std::uint32_t b) {
  return psn_diff(a, b) > 0;
}
/// `psn` lies in [first, first + count), count up to 2^23.
constexpr bool psn_in(std::uint32_t psn, std::uint32_t first, std::uint32_t count) {
  return ((psn - first) & kPsnMask) < count;
}

/// Packets of a message of `length` bytes at path MTU `mtu` (bytes); an empty message takes one
/// packet.
constexpr std::uint32_t packet_count(std::uint64_t length, std::uint32_t mtu) {
  return length <= mtu ? 1 : static_cast<std::uint32_t>((length + mtu - 1) / mtu);
}

}  // namespace softhca::ib
