// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "hw-model/runtime/clock.h"
#include "hw-model/runtime/sweep.h"

namespace softhca::emulator {

/// When to look at the doorbell records of a device whose driver may ring by plain stores alone:
/// every kShortest while it has found something a short while ago, so that who waits for an answer
/// before it rings again is not kept waiting for longer and longer; then ever more rarely, so that
/// kLongest bounds the delay of a doorbell after a pause.
///
/// A driver that rings by hints needs that only for what its hints do not tell: every kHinted at
/// most, and more rarely as soon as nothing is found. A sleep that ends soon costs a timer.
///
/// With thousands of queues a look is made in pieces of kQueuesAtOnce, some 15 us each, with
/// pauses that leave the engine to those who have something to do; it takes longer then.
class SweepSchedule {
 public:
  static constexpr Nanoseconds kShortest = 500'000;
  static constexpr Nanoseconds kHinted = 1'000'000;
  static constexpr Nanoseconds kLongest = 20'000'000;
  /// So long after something was found nothing is looked at more rarely.
  static constexpr Nanoseconds kEager = 5'000'000;

  /// QPs and CQs that are looked at in one go.
  static constexpr std::uint32_t kQueuesAtOnce = 512;
  /// From one piece to the next.
  static constexpr Nanoseconds kPieces = 100'000;
  static constexpr Nanoseconds kHintedPieces = 2'000'000;

  Nanoseconds next() const { return next_; }
  bool due(Nanoseconds now) const { return now >= next_; }

  /// The driver was interrupted, so that it is likely to ring soon, however long it has not: two
  /// that answer each other were looked at ever more rarely.
  void interrupted(Nanoseconds now) {
    found_ = now;
    pause_ = kShortest;
    next_ = std::min(next_, (now / kShortest + 1) * kShortest);
  }

  void swept(Sweep sweep, Nanoseconds now, bool hinted = false) {
    moved_ |= sweep.moved;
    if (!sweep.whole) {
      const Nanoseconds piece = !hinted ? kPieces : sweep.moved ? kHinted : kHintedPieces;
      next_ = (now / piece + 1) * piece;
      return;
    }
    const bool found = std::exchange(moved_, false);
    if (found) found_ = now;
    const bool eager = found_ != kNever && now - found_ < kEager;
    if (hinted ? found : eager) {
      pause_ = hinted ? kHinted : kShortest;
    } else {
      pause_ = std::min(pause_ * 2, kLongest);
    }
    // At multiples, so that the devices of an idle fabric wake the engine together.
    next_ = (now / pause_ + 1) * pause_;
  }

 private:
  Nanoseconds next_ = 0;
  Nanoseconds pause_ = kShortest;
  Nanoseconds found_ = kNever;
  bool moved_ = false;  ///< Found by the pieces of this look so far.
};

}  // namespace softhca::emulator
