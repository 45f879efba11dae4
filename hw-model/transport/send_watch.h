// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <atomic>
#include <cstdint>

#include "hw-model/memory/dma_space.h"
#include "hw-model/transport/queue_pair.h"

namespace softhca {

/// The one send queue whose doorbell record a device looks at unasked: that which drivers have
/// named by hints again and again, and no other meanwhile. They then need not name it any more
/// (DoorbellHints::watched).
class SendWatch {
 public:
  /// Hints in a row after which a queue is watched.
  static constexpr unsigned kHints = 8;

  explicit SendWatch(const DmaSpace& dma) : dma_(dma) {}

  /// Where drivers are told, as DoorbellHints::watched has it; null: nowhere, and nothing is
  /// watched. Must stay until this is called again.
  void publish_in(std::atomic<std::uint32_t>* word);

  /// A hint has named the QP, which has been looked at.
  void hinted(QueuePair& qp) {
    if (word_ != nullptr) count(qp);
  }

  /// look() has something to do. The next WQE is fetched while nothing has come: where it does, it
  /// comes before its record.
  bool rung() const {
    if (watched_ == nullptr) return false;
    watched_->sq.prefetch_wqe();
    return generation_ != dma_.generation() || glance() != seen_;
  }
  /// Rings the queue, if its record has moved, as a hint would. True if it was rung.
  bool look() {
    if (watched_ == nullptr) return false;
    if (generation_ != dma_.generation()) {
      look_up();
      return true;
    }
    const std::uint32_t now = glance();
    if (now == seen_) return false;
    seen_ = now;
    watched_->doorbell();
    return true;
  }
  /// Clients may write anything into the page: says once more what is watched. What it said
  /// instead, as DoorbellHints::watched has it; 0: nothing, or it was right.
  std::uint32_t repair() {
    const std::uint32_t found =
        word_ == nullptr ? published_ : word_->load(std::memory_order_relaxed);
    if (found == published_) return 0;
    publish();
    return found;
  }
  bool watches(const QueuePair& qp) const { return watched_ == &qp; }
  /// The QP goes away.
  void forget(const QueuePair& qp);
  /// All QPs do.
  void clear();

 private:
  /// In the order of its bytes, of which any that changes is worth a look.
  std::uint32_t glance() const { return __atomic_load_n(record_, __ATOMIC_SEQ_CST); }
  void publish();
  void count(QueuePair& qp);
  /// The record may be elsewhere now.
  void look_up();
  /// Watches this QP, if that is possible.
  void watch(QueuePair* qp);

  const DmaSpace& dma_;
  std::atomic<std::uint32_t>* word_ = nullptr;
  QueuePair* watched_ = nullptr;
  const std::uint32_t* record_ = nullptr;  ///< Of the watched queue, in this generation of `dma_`.
  std::uint64_t generation_ = 0;
  std::uint32_t seen_ = 0;  ///< What the record was when the queue was rung.
  std::uint32_t published_ = 0;
  const QueuePair* candidate_ = nullptr;
  unsigned hints_ = 0;               ///< Of the candidate, in a row.
  std::uint32_t seen_at_first_ = 0;  ///< seen_ at the first of them.
};

}  // namespace softhca
