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
  TakeStatus update();
  /// True if update() has seen WQEs that were not taken.
  bool has_work() const { return posted_ != consumed_; }
  /// Asks the processor for the next WQE: with the doorbell record it comes from another core's
  /// cache, and both may come at once.
  void prefetch(QueueBuffer& buffer) const {
    const std::uint64_t ring_size = prm::kWqeBasicBlock << params_.log_size;
    const std::uint64_t position = (consumed_ * prm::kWqeBasicBlock) & (ring_size - 1);
    __builtin_prefetch(buffer.direct(params_.start + position, prm::kWqeBasicBlock));
  }
  /// The next WQE's first basic block, if it lies in one mapped piece and no copy was offered; else
  /// null. The driver may be writing there.
  const std::byte* peek(QueueBuffer& buffer) const {
    if (!copy_.empty()) return nullptr;
    const std::uint64_t ring_mask = (prm::kWqeBasicBlock << params_.log_size) - 1;
    return buffer.direct(params_.start + ((consumed_ * prm::kWqeBasicBlock) & ring_mask),
                         prm::kWqeBasicBlock);
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

  DmaSpace* dma_ = nullptr;
  SendQueueParams params_;
  DoorbellRecord record_;
  std::uint16_t consumed_ = 0;
  std::uint16_t posted_ = 0;
  std::uint16_t released_ = 0;
  std::vector<std::uint8_t> copy_;
};

}  // namespace softhca
