// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "hw-model/memory/dma_space.h"
#include "hw-model/prm/wqe.h"
#include "hw-model/queues/doorbell_record.h"
#include "hw-model/queues/queue_buffer.h"
#include "hw-model/queues/receive_queue.h"

namespace softhca {

struct SendQueueParams {
  std::uint64_t start = 0;            ///< Byte offset in the buffer.
  std::uint8_t log_size = 0;          ///< Basic blocks of 64 bytes.
  std::uint64_t doorbell_record = 0;  ///< IOVA of the 4-byte send word.
};

/// A send WQE as it stood in the ring, copied once; `index` is its first basic block modulo 2^16.
struct RawSendWqe {
  std::uint16_t index = 0;
  std::uint16_t size = 0;  ///< Bytes, a multiple of 16.
  alignas(16) std::array<std::uint8_t, prm::kWqeMaxSendBytes> bytes;
};

/// Ring of send WQEs of one QP (PRM "Send queue").
class SendQueue {
 public:
  SendQueue() = default;
  SendQueue(DmaSpace& dma, SendQueueParams params);

  /// Reads the producer counter. `error`: it is further ahead than the ring is long.
  TakeStatus update() {
    if (dma_ == nullptr) return TakeStatus::empty;
    std::uint32_t word = 0;
    const DmaStatus status = record_.load(*dma_, params_.doorbell_record, word);
    if (status != DmaStatus::ok) {
      return status == DmaStatus::pending ? TakeStatus::pending : TakeStatus::error;
    }
    const auto posted = static_cast<std::uint16_t>(word);
    if (static_cast<std::uint16_t>(posted - released_) > blocks_) {
      return TakeStatus::error;
    }
    posted_ = posted;
    return has_work() ? TakeStatus::ok : TakeStatus::empty;
  }
  /// DoorbellRecord::mapped_at(), after an update().
  const std::uint32_t* record_at() const {
    return dma_ == nullptr ? nullptr : record_.mapped_at(*dma_);
  }
  /// True if update() has seen WQEs that were not taken.
  bool has_work() const { return posted_ != consumed_; }
  /// Asks the processor for the doorbell record and the next WQE: they come from another core's
  /// cache, and both may come at once.
  void prefetch() const {
    record_.prefetch();
    prefetch_wqe();
  }
  void prefetch_wqe() const {
    // Where it was last found: what does not hold any more does no harm.
    if (ring_ != nullptr) {
      __builtin_prefetch(ring_ + (consumed_ * prm::kWqeBasicBlock & ring_mask_));
    }
  }
  /// The next WQE's first basic block, if it lies in one mapped piece and no copy was offered; else
  /// null. The driver may be writing there.
  const std::byte* peek(QueueBuffer& buffer) {
    return copy_.empty() ? next_block(buffer) : nullptr;
  }
  /// Takes a WQE of one basic block, and frees it; returns its index.
  std::uint16_t take_block() {
    const std::uint16_t index = consumed_++;
    released_ = consumed_;
    return index;
  }
  /// Takes the next WQE known from update(). `error`: malformed length, or unreadable ring.
  TakeStatus take(QueueBuffer& buffer, RawSendWqe& wqe);
  /// A copy of a WQE that the driver made beside the ring (BlueFlame), whole: take() then gives
  /// this one. The last copy counts.
  void offer_copy(std::span<const std::uint8_t> wqe) { copy_.assign(wqe.begin(), wqe.end()); }
  /// Basic blocks up to here are free again (for the overflow check).
  void release(std::uint16_t up_to) { released_ = up_to; }
  void reset() {
    consumed_ = posted_ = released_ = 0;
    copy_.clear();
  }

  std::uint16_t consumed() const { return consumed_; }
  std::uint16_t posted() const { return posted_; }
  const SendQueueParams& params() const { return params_; }

 private:
  TakeStatus read(QueueBuffer& buffer, RawSendWqe& wqe, std::size_t& size);
  bool take_copy(RawSendWqe& wqe, std::size_t& size);
  const std::byte* next_block(QueueBuffer& buffer) {
    if (generation_ != dma_->generation()) look_up(buffer);
    const std::uint64_t at = consumed_ * prm::kWqeBasicBlock & ring_mask_;
    if (ring_ != nullptr) return ring_ + at;
    return buffer.direct(params_.start + at, prm::kWqeBasicBlock);
  }
  void look_up(QueueBuffer& buffer);

  DmaSpace* dma_ = nullptr;
  SendQueueParams params_;
  DoorbellRecord record_;
  std::uint32_t blocks_ = 0;         ///< Of the ring.
  std::uint64_t ring_mask_ = 0;      ///< Bytes of the ring, less one.
  const std::byte* ring_ = nullptr;  ///< Where it is one mapped piece.
  std::uint64_t generation_ = 0;     ///< Of the DmaSpace that `ring_` was found in.
  std::uint16_t consumed_ = 0;
  std::uint16_t posted_ = 0;
  std::uint16_t released_ = 0;
  std::vector<std::uint8_t> copy_;
};

}  // namespace softhca
