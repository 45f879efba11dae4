// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include "hw-model/runtime/clock.h"

namespace softhca::test {

/// Time that moves only when a test says so.
class VirtualClock final : public Clock {
 public:
  Nanoseconds now() const override { return now_; }
  void advance(Nanoseconds by) { now_ += by; }
  /// Never backwards.
  void advance_to(Nanoseconds time) {
    if (time > now_) now_ = time;
  }

 private:
  Nanoseconds now_ = 1'000'000;
};

}  // namespace softhca::test
