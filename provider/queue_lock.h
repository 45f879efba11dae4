// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <sched.h>

#include <atomic>

namespace softhca::provider {

/// Lock of one queue. Not taken at all when the application promised one thread per queue (thread
/// domain, single-threaded CQ). Yields after a bounded spin: the holder may have lost its
/// processor.
class QueueLock {
 public:
  /// `needed` false: lock() and unlock() do nothing. Before first use only.
  void set_needed(bool needed) { needed_ = needed; }
  bool needed() const { return needed_; }

  void lock() {
    if (!needed_) return;
    for (unsigned spins = 0; !try_take();) {
      while (held_.load(std::memory_order_relaxed)) {
        if (++spins % kSpinsBeforeYield == 0) {
          sched_yield();
        } else {
          pause();
        }
      }
    }
  }
  void unlock() {
    if (needed_) give();
  }

  /// For who has asked needed() before: takes the lock if it is free; and gives it back.
  bool try_take() { return !held_.exchange(true, std::memory_order_acquire); }
  void give() { held_.store(false, std::memory_order_release); }

 private:
  static constexpr unsigned kSpinsBeforeYield = 128;
  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }

  std::atomic<bool> held_{false};
  bool needed_ = true;
};

}  // namespace softhca::provider
