// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/transport/send_watch.h"

#include "hw-model/runtime/full_fence.h"

namespace softhca {

void SendWatch::publish_in(std::atomic<std::uint32_t>* word) {
  watch(nullptr);
  word_ = word;
  watch(nullptr);
}

void SendWatch::publish() {
  if (word_ != nullptr) word_->store(published_, std::memory_order_relaxed);
  full_fence();
}

void SendWatch::count(QueuePair& qp) {
  if (&qp == watched_) {
    publish();  // He does not know.
    return;
  }
  if (&qp != candidate_ || seen_ != seen_at_first_) {
    candidate_ = &qp;
    hints_ = 0;
    seen_at_first_ = seen_;
  }
  // One whose record cannot be looked at takes nobody's place.
  if (++hints_ >= kHints && qp.sq.record_at() != nullptr) watch(&qp);
}

void SendWatch::look_up() {
  watched_->doorbell();
  watch(watched_);
}

void SendWatch::watch(QueuePair* qp) {
  QueuePair* const before = watched_;
  record_ = qp != nullptr ? qp->sq.record_at() : nullptr;
  watched_ = record_ == nullptr ? nullptr : qp;
  candidate_ = nullptr;
  published_ = watched_ == nullptr ? 0 : watched_->number() + 1;
  publish();
  // Who saw that the queue is watched and has not marked it is seen here or by the next look; who
  // saw that another one was, by that one's last doorbell.
  if (watched_ != nullptr) {
    generation_ = dma_.generation();
    seen_ = glance();
    watched_->doorbell();
  }
  if (before != nullptr && before != watched_) before->doorbell();
}

void SendWatch::forget(const QueuePair& qp) {
  if (candidate_ == &qp) candidate_ = nullptr;
  if (watched_ == &qp) clear();
}

void SendWatch::clear() {
  watched_ = nullptr;
  watch(nullptr);
}

}  // namespace softhca
