// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cerrno>
#include <cstdint>

#include <sched.h>
#include <sys/resource.h>

#include "hw-model/runtime/aside_policy.h"
#include "hw-model/runtime/clock.h"

namespace softhca::shim {

/// Does for one thread what AsidePolicy says. The set of processors that the thread may use is the
/// same afterwards.
class StepAside {
 public:
  /// The thread has waited, and would yield. `engine_processor`: DoorbellHints::engine_processor.
  void consider(std::uint32_t engine_processor, Nanoseconds now) {
    if (engine_processor == 0 || engine_processor > CPU_SETSIZE) return;
    const int engine = static_cast<int>(engine_processor) - 1;
    const int before = errno;
    switch (policy_.decide(::sched_getcpu() == engine, now, involuntary_switches)) {
      case AsidePolicy::Move::none:
        break;
      case AsidePolicy::Move::leave:
        move(engine, false);
        break;
      case AsidePolicy::Move::come_back:
        move(engine, true);
        break;
    }
    errno = before;
  }

 private:
  static std::uint64_t involuntary_switches() {
    rusage usage{};
    ::getrusage(RUSAGE_THREAD, &usage);
    return static_cast<std::uint64_t>(usage.ru_nivcsw);
  }

  /// Off the processor, or onto it.
  static void move(int processor, bool onto) {
    cpu_set_t allowed;
    if (::sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
    cpu_set_t wanted = allowed;
    if (onto) {
      if (!CPU_ISSET(processor, &allowed)) return;
      CPU_ZERO(&wanted);
      CPU_SET(processor, &wanted);
    } else {
      CPU_CLR(processor, &wanted);
      if (CPU_COUNT(&wanted) == 0) return;
    }
    // The first call moves the thread, the second leaves it where it is.
    if (::sched_setaffinity(0, sizeof(wanted), &wanted) == 0) {
      ::sched_setaffinity(0, sizeof(allowed), &allowed);
    }
  }

  AsidePolicy policy_;
};

}  // namespace softhca::shim
