// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <ctime>

#include <sched.h>
#include <unistd.h>

#include "hw-model/runtime/clock.h"
#include "hw-model/runtime/yield_pacer.h"
#include "kernel-shim/protocol/step_aside.h"

namespace softhca::shim {

/// A thread that polls for completions on a virtual host: it gives its processor away as often as
/// that is wanted, or leaves it to the engine.
class PolitePoller {
 public:
  /// One for each thread. `call_cost`: measure_call().
  explicit PolitePoller(Nanoseconds call_cost) : pacer_(call_cost) {}

  /// What a trivial system call takes here.
  static Nanoseconds measure_call() {
    return cheapest_of(monotonic_time, [] { ::getppid(); });
  }

  /// The thread has polled in vain. `engine_processor`: DoorbellHints::engine_processor. True if it
  /// shares its processor with somebody who gives it back soon: then it should be asked after every
  /// empty poll. A peer that spins on memory until it is written to runs only when this thread
  /// gives way, and what the thread waits for may come before it has polled often. Whoever keeps
  /// the processor for a time slice gives nothing back: no reason for haste.
  bool yield_if_due(std::uint32_t engine_processor) {
    const Nanoseconds before = monotonic_time();
    if (!pacer_.due(before)) return false;
    aside_.consider(engine_processor, before);
    ::sched_yield();
    pacer_.yielded(before, monotonic_time());
    return pacer_.shared();
  }

 private:
  static Nanoseconds monotonic_time() {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<Nanoseconds>(now.tv_sec) * 1'000'000'000 +
           static_cast<Nanoseconds>(now.tv_nsec);
  }

  YieldPacer pacer_;
  StepAside aside_;
};

}  // namespace softhca::shim
