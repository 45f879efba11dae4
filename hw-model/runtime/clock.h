// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>

namespace softhca {

/// Nanoseconds on the device's own monotonic clock.
using Nanoseconds = std::uint64_t;

/// "No timer is pending".
inline constexpr Nanoseconds kNever = ~Nanoseconds{0};

/// Where the model learns the time: the host's monotonic clock in the emulator, virtual time in
/// tests.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual Nanoseconds now() const = 0;
};

}  // namespace softhca
