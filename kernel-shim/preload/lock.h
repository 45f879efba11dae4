// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <atomic>
#include <csignal>
#include <cstdint>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernel-shim/preload/errno_guard.h"

namespace softhca::shim::preload {

/// A mutex of one word without a constructor, so that it is usable before any library is
/// initialised. Signals stay blocked while it is held: a handler that issues commands of its own
/// would wait for its own thread. They are not while one waits for it: stop_other_threads() reaches
/// those threads, too.
class Lock {
 public:
  void lock() {
    const ErrnoGuard guard;
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    std::uint32_t wanted = kHeld;
    while (true) {
      ::syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, kKernelSignalSetSize);
      std::uint32_t expected = kFree;
      if (word_.compare_exchange_strong(expected, wanted, std::memory_order_acquire)) break;
      // Who has waited takes it as contended: others may wait, too.
      wanted = kContended;
      if (expected == kHeld) {
        word_.compare_exchange_strong(expected, kContended, std::memory_order_relaxed);
      }
      ::syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, nullptr, kKernelSignalSetSize);
      ::syscall(SYS_futex, &word_, FUTEX_WAIT_PRIVATE, kContended, nullptr, nullptr, 0);
    }
    signals_ = before;
  }

  void unlock() {
    const ErrnoGuard guard;
    const sigset_t before = signals_;
    if (word_.exchange(kFree, std::memory_order_release) == kContended) {
      ::syscall(SYS_futex, &word_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
    }
    ::syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, nullptr, kKernelSignalSetSize);
  }

  /// In the child of fork(), where the thread that held it does not exist.
  void reset() { word_.store(kFree, std::memory_order_relaxed); }

 private:
  static constexpr std::size_t kKernelSignalSetSize = 8;
  static constexpr std::uint32_t kFree = 0;
  static constexpr std::uint32_t kHeld = 1;
  static constexpr std::uint32_t kContended = 2;

  std::atomic<std::uint32_t> word_;
  sigset_t signals_;  // of the holder
};

class LockGuard {
 public:
  explicit LockGuard(Lock& lock) : lock_(lock) { lock_.lock(); }
  LockGuard(const LockGuard&) = delete;
  LockGuard& operator=(const LockGuard&) = delete;
  ~LockGuard() { lock_.unlock(); }

 private:
  Lock& lock_;
};

}  // namespace softhca::shim::preload
