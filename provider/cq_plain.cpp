// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/cq_plain.h"

/// ibv_poll_cq(), and the short way through it for one plain completion. What is not plain goes to
/// poll_held().
namespace softhca::provider {
namespace {

[[gnu::noinline]] int lock_and_poll(CompletionQueue& cq, int entries, ibv_wc* wc) {
  cq.lock.lock();
  return poll_held(cq, entries, wc);
}

template <bool kLocked>
[[gnu::always_inline]] inline int poll_one(CompletionQueue& cq, ibv_wc* wc) {
  if (kLocked && !cq.lock.try_take()) return lock_and_poll(cq, 1, wc);
  const std::uint32_t consumer = cq.consumer;
  if (!take_plain(cq, consumer, *wc)) return poll_held(cq, 1, wc);
  cq.release(consumer + 1);
  if (kLocked) cq.lock.give();
  return 1;
}

/// Of its own, so that the most usual way needs no jump.
[[gnu::noinline]] int poll_one_unlocked(CompletionQueue& cq, ibv_wc* wc) {
  return poll_one<false>(cq, wc);
}

}  // namespace

int poll_cq(ibv_cq* base, int entries, ibv_wc* wc) {
  CompletionQueue& cq = *CompletionQueue::of(base);
  if (entries != 1) return lock_and_poll(cq, entries, wc);
  if (cq.lock.needed()) [[likely]]
    return poll_one<true>(cq, wc);
  return poll_one_unlocked(cq, wc);
}

}  // namespace softhca::provider
