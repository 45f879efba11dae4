// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <ctime>

#include "hw-model/runtime/clock.h"

namespace softhca::emulator {

/// The host's monotonic clock. Devices see the time of the last refresh(): within one pass of the
/// engine it stands still, which spares them a system call's worth of time for each look.
class EngineClock final : public Clock {
 public:
  EngineClock() : Clock(host_time()) {}

  Nanoseconds refresh() {
    set_now(host_time());
    return now();
  }

 private:
  static Nanoseconds host_time() {
    timespec time{};
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<Nanoseconds>(time.tv_sec) * 1'000'000'000U +
           static_cast<Nanoseconds>(time.tv_nsec);
  }
};

}  // namespace softhca::emulator
