// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <atomic>

namespace softhca {

/// Stores before it are seen by others before loads after it are made: for two sides of which each
/// stores, then looks whether the other one has.
inline void full_fence() {
#ifdef __SANITIZE_THREAD__
  // ThreadSanitizer knows no fences; on the processors that it runs on this is one.
  std::atomic<int> here{0};
  here.fetch_add(1, std::memory_order_seq_cst);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace softhca
