// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "hw-model/prm/wqe.h"
#include "provider/queue_lock.h"

namespace softhca::provider {

/// The ring of a receive queue: strides of scatter entries.
struct ReceiveQueue {
  std::uint8_t* start = nullptr;
  std::uint32_t count = 0;  ///< Strides; power of two; 0: no receive queue.
  std::uint32_t stride_shift = 0;
  std::uint32_t max_sge = 0;

  std::unique_ptr<std::uint64_t[]> wr_ids;
  std::uint32_t head = 0;
  std::atomic<std::uint32_t> tail{0};  ///< Written by who polls the CQ.
  prm::Be32* record = nullptr;         ///< Receive word of the doorbell record.
  QueueLock lock;

  void reset() {
    head = 0;
    tail.store(0, std::memory_order_relaxed);
  }
  /// wr_id of the oldest entry, which is then free again.
  std::uint64_t complete() {
    const std::uint32_t index = tail.load(std::memory_order_relaxed);
    const std::uint64_t wr_id = wr_ids[index & (count - 1)];
    tail.store(index + 1, std::memory_order_release);
    return wr_id;
  }
  /// Posts a chain; 0, or an errno with the first request that was not posted.
  int post(ibv_recv_wr* wr, ibv_recv_wr** bad);
};

/// The ring of a shared receive queue: a linked list of free entries inside an array. The device
/// takes entries in the order of the list; a completed one goes to its end.
struct SharedReceiveRing {
  std::uint8_t* start = nullptr;
  std::uint32_t count = 0;  ///< Entries; one always stays with the software.
  std::uint32_t stride_shift = 0;
  std::uint32_t max_sge = 0;

  std::unique_ptr<std::uint64_t[]> wr_ids;
  std::uint32_t head = 0;  ///< Next entry to fill.
  std::uint32_t tail = 0;  ///< Last free entry.
  std::uint16_t counter = 0;
  prm::Be32* record = nullptr;
  QueueLock lock;

  std::uint8_t* entry(std::uint32_t index) const {
    return start + (static_cast<std::size_t>(index) << stride_shift);
  }
  prm::NextWords* link(std::uint32_t index) const {
    return reinterpret_cast<prm::NextWords*>(entry(index));
  }
  /// Chains all entries; the ring is then empty.
  void initialize();
  /// wr_id of entry `index` (from a CQE), which is then free again. False for an index out of
  /// range.
  bool complete(std::uint16_t index, std::uint64_t& wr_id);
  int post(ibv_recv_wr* wr, ibv_recv_wr** bad);
};

}  // namespace softhca::provider
