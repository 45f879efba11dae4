// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>

namespace softhca {

/// Nanoseconds on the device's own monotonic clock.
using Nanoseconds = std::uint64_t;

/// "No timer is pending".
inline constexpr Nanoseconds kNever = ~Nanoseconds{0};

/// Where the model learns the time: the host's monotonic clock in the emulator, virtual time in
/// tests. Whoever runs the model sets it; meanwhile it stands still, and a look at it is a load.
class Clock {
 public:
  Nanoseconds now() const { return now_; }

 protected:
  explicit Clock(Nanoseconds now) : now_(now) {}
  ~Clock() = default;
  void set_now(Nanoseconds now) { now_ = now; }

 private:
  Nanoseconds now_;
};

}  // namespace softhca
