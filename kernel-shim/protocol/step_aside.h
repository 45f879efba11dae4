// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cerrno>
#include <cstdint>

#include <sched.h>

#include "hw-model/runtime/clock.h"

namespace softhca::shim {

/// Moves a thread that polls in vain off the engine's processor. Two that poll on one processor
/// take turns by yields, a process change for each; where two threads poll for each other's
/// messages, they do best with a processor to themselves and the engine with another. The set of
/// processors that the thread may use is the same afterwards.
class StepAside {
 public:
  /// The kernel balances load, too: not more often than this.
  static constexpr Nanoseconds kInterval = 2'000'000;

  /// The thread has waited, and would yield. `engine_processor`: DoorbellHints::engine_processor.
  void consider(std::uint32_t engine_processor, Nanoseconds now) {
    if (engine_processor == 0 || now < next_) return;
    const int here = ::sched_getcpu();
    if (here < 0 || static_cast<std::uint32_t>(here) + 1 != engine_processor) return;
    next_ = now + kInterval;
    leave(here);
  }

 private:
  static void leave(int processor) {
    const int before = errno;
    move_off(processor);
    errno = before;
  }

  static void move_off(int processor) {
    cpu_set_t allowed;
    if (processor >= CPU_SETSIZE || ::sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
    cpu_set_t others = allowed;
    CPU_CLR(processor, &others);
    if (CPU_COUNT(&others) == 0) return;
    // The first call moves the thread, the second leaves it where it is.
    if (::sched_setaffinity(0, sizeof(others), &others) == 0) {
      ::sched_setaffinity(0, sizeof(allowed), &allowed);
    }
  }

  Nanoseconds next_ = 0;
};

}  // namespace softhca::shim
