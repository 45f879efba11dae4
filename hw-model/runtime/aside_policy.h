// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <algorithm>
#include <cstdint>

#include "hw-model/runtime/clock.h"

namespace softhca {

/// Whether a thread that polls in vain should be on the engine's processor. Two that poll on one
/// processor take turns by yields, a process change for each; where two threads poll for each
/// other's messages, they do best with a processor to themselves and the engine with another.
///
/// But programs that spin on memory give nothing away: with another one on their processor each
/// waits for the other's time slice to end. Where such gaps fill most of the time, and the kernel
/// has taken the processor away in them, the thread goes back, and tries again later and later.
/// Pure: the caller has the clock and makes the calls.
class AsidePolicy {
 public:
  enum class Move : std::uint8_t { none, leave, come_back };

  /// The kernel balances load, too: the thread does not leave more often than this.
  static constexpr Nanoseconds kInterval = 2'000'000;
  /// How long it is watched what leaving has brought.
  static constexpr Nanoseconds kTrial = 24'000'000;
  /// A pause between two polls that looks like a time slice of somebody else.
  static constexpr Nanoseconds kGap = 2'000'000;
  static constexpr Nanoseconds kFirstPause = 1'000'000'000;
  static constexpr Nanoseconds kLongestPause = 64'000'000'000;

  /// To be asked when the thread has waited and would yield. `beside_engine`: it is on the engine's
  /// processor. `switches()`: how many involuntary switches the thread has had.
  template <typename Switches>
  Move decide(bool beside_engine, Nanoseconds now, Switches&& switches) {
    if (watched_since_ != kNever) {
      if (now - last_ >= kGap) lost_ += now - last_;
      last_ = now;
      if (now - watched_since_ >= kTrial) {
        const bool harms = 2 * lost_ > now - watched_since_ && switches() >= switches_ + 2;
        watch(now, switches());
        if (harms) {
          watched_since_ = kNever;
          not_before_ = now + pause_;
          pause_ = std::min(2 * pause_, kLongestPause);
          return Move::come_back;
        }
      }
    }
    if (!beside_engine || now < not_before_) return Move::none;
    not_before_ = now + kInterval;
    if (watched_since_ == kNever) watch(now, switches());
    return Move::leave;
  }

 private:
  void watch(Nanoseconds now, std::uint64_t switches) {
    watched_since_ = last_ = now;
    lost_ = 0;
    switches_ = switches;
  }

  Nanoseconds not_before_ = 0;
  Nanoseconds watched_since_ = kNever;  ///< kNever: it has not left.
  Nanoseconds last_ = 0;                ///< Asked.
  Nanoseconds lost_ = 0;                ///< Gaps since watched_since_.
  std::uint64_t switches_ = 0;          ///< At watched_since_.
  Nanoseconds pause_ = kFirstPause;
};

}  // namespace softhca
