// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <algorithm>

#include "hw-model/runtime/clock.h"

namespace softhca {

/// How often somebody who polls gives the processor away: often while others want it, seldom while
/// it is alone there. A yield is a system call, which on some virtual machines takes longer than a
/// message does, and what comes meanwhile is found late.
///
/// A yield that took about as long as any system call met nobody. But a process of another group
/// (a session of its own has one, by autogroups) gets the processor only after this group has had
/// its share: where there was somebody before, the next yields are tried as well. Pure: the caller
/// has the clock and makes the calls.
class YieldPacer {
 public:
  /// After a yield that met nobody the next one comes this much later: the longest that somebody
  /// who came to this processor meanwhile has to wait.
  static constexpr Nanoseconds kAlone = 10'000;
  /// Yields in a row that meet nobody before it counts as being alone.
  static constexpr unsigned kTries = 32;
  /// A yield that lasts longer has met somebody who does not yield.
  static constexpr Nanoseconds kLongYield = 300'000;
  /// Shorter ones in a row that show that the processor is given back.
  static constexpr unsigned kReturned = 8;

  /// `call_cost`: what a trivial system call takes here (cheapest_of()).
  explicit YieldPacer(Nanoseconds call_cost) : alone_below_(3 * call_cost + 200) {}

  bool due(Nanoseconds now) const { return now >= next_; }
  /// There is somebody who gives the processor back soon, time and again. Whoever keeps it for a
  /// time slice gives nothing back: no reason for haste.
  bool shared() const { return tries_left_ != 0 && returned_ == kReturned; }
  void yielded(Nanoseconds from, Nanoseconds to) {
    const bool met_nobody = to - from < alone_below_;
    if (to - from >= kLongYield) {
      returned_ = 0;
    } else if (!met_nobody && returned_ < kReturned) {
      ++returned_;
    }
    if (!met_nobody) {
      tries_left_ = kTries;
    } else if (tries_left_ != 0) {
      --tries_left_;
    }
    next_ = tries_left_ != 0 ? to : to + kAlone;
  }

 private:
  Nanoseconds alone_below_;
  Nanoseconds next_ = 0;
  unsigned tries_left_ = 0;
  unsigned returned_ = 0;
};

/// Shortest time of a few `call()`s by the clock `now()`.
template <typename Now, typename Call>
Nanoseconds cheapest_of(Now&& now, Call&& call) {
  Nanoseconds cheapest = kNever;
  for (int i = 0; i < 8; ++i) {
    const Nanoseconds before = now();
    call();
    cheapest = std::min(cheapest, now() - before);
  }
  return cheapest;
}

}  // namespace softhca
