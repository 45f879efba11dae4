// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "hw-model/fabric/mad_outbox.h"
#include "hw-model/ib/port.h"
#include "hw-model/runtime/clock.h"

namespace softhca::fabric {

/// Trap 128 of a switch: the state of a link changed (IBA 14.2.5.1). Sent to the master subnet
/// manager until that represses it, a bounded number of times.
class LinkTrap {
 public:
  static constexpr Nanoseconds kInterval = 1'000'000'000;
  static constexpr unsigned kTries = 4;

  void raise(Nanoseconds now) {
    tries_left_ = kTries;
    next_ = now;
    ++transaction_;
  }
  void repress(std::uint64_t transaction) {
    if (transaction == transaction_) cancel();
  }
  void cancel() {
    tries_left_ = 0;
    next_ = kNever;
  }
  /// Sends the trap from the management port `own` if it is due. Returns how many it sent.
  std::size_t step(Nanoseconds now, const ib::PortAttributes& own, MadOutbox& outbox);
  Nanoseconds next_deadline() const { return next_; }

 private:
  unsigned tries_left_ = 0;
  Nanoseconds next_ = kNever;
  std::uint64_t transaction_ = 0;
};

}  // namespace softhca::fabric
