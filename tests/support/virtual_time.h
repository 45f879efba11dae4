// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include "hw-model/runtime/clock.h"

namespace softhca::test {

/// Time that moves only when a test says so.
class VirtualClock final : public Clock {
 public:
  explicit VirtualClock(Nanoseconds now = 1'000'000) : Clock(now) {}
  void set(Nanoseconds time) { set_now(time); }
  void advance(Nanoseconds by) { set_now(now() + by); }
  /// Never backwards.
  void advance_to(Nanoseconds time) {
    if (time > now()) set_now(time);
  }
};

}  // namespace softhca::test
