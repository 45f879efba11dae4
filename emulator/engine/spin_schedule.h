// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include "hw-model/runtime/clock.h"
#include "hw-model/runtime/yield_pacer.h"

namespace softhca::emulator {

/// Whether the engine polls on when it has nothing to do, or sleeps.
///
/// Polling with a yield between passes is faster than sleeping as long as whoever shares the
/// processor yields, too, as our pollers do. A program that spins on memory does not: a yield then
/// lasts a scheduler's slice, milliseconds, while a sleeping engine is put in front by the wake-up.
/// So one long yield makes the engine sleep at once for a while.
class SpinSchedule {
 public:
  /// After work it polls this long before it yields, in system calls: an answer to what it
  /// delivered comes sooner than the processor comes back, for which two processes must be changed.
  static constexpr Nanoseconds kAnswerTime = 4;
  static constexpr Nanoseconds kLongYield = YieldPacer::kLongYield;
  /// How long the engine then does without polling.
  static constexpr Nanoseconds kPause = 20'000'000;

  /// `idle_spin`: how long to poll without work. `call_cost`: see YieldPacer.
  SpinSchedule(Nanoseconds idle_spin, Nanoseconds call_cost)
      : idle_spin_(idle_spin), answer_time_(kAnswerTime * call_cost), pacer_(call_cost) {}

  bool spins(Nanoseconds now, Nanoseconds last_active) const {
    return now - last_active < idle_spin_ && now >= again_at_;
  }
  /// Whether it yields before the next pass.
  bool yields(Nanoseconds now, Nanoseconds last_active) const {
    return now - last_active >= answer_time_ && pacer_.due(now);
  }
  void yielded(Nanoseconds from, Nanoseconds to) {
    pacer_.yielded(from, to);
    if (to - from > kLongYield) again_at_ = to + kPause;
  }

 private:
  Nanoseconds idle_spin_;
  Nanoseconds answer_time_;
  YieldPacer pacer_;
  Nanoseconds again_at_ = 0;
};

}  // namespace softhca::emulator
