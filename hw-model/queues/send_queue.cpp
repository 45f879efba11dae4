// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/queues/send_queue.h"

namespace softhca {

SendQueue::SendQueue(DmaSpace& dma, SendQueueParams params) : dma_(&dma), params_(params) {}

TakeStatus SendQueue::update() {
  if (dma_ == nullptr) return TakeStatus::empty;
  std::uint32_t word = 0;
  const DmaStatus status = dma_->load_be32(params_.doorbell_record, word);
  if (status == DmaStatus::pending) return TakeStatus::pending;
  if (status == DmaStatus::fault) return TakeStatus::error;
  const auto posted = static_cast<std::uint16_t>(word);
  if (static_cast<std::uint16_t>(posted - released_) > 1U << params_.log_size) {
    return TakeStatus::error;
  }
  posted_ = posted;
  return has_work() ? TakeStatus::ok : TakeStatus::empty;
}

TakeStatus SendQueue::take(QueueBuffer& buffer, RawSendWqe& wqe) {
  if (dma_ == nullptr || !has_work()) return TakeStatus::empty;
  const std::uint64_t ring_size = prm::kWqeBasicBlock << params_.log_size;
  const std::uint64_t position = (consumed_ * prm::kWqeBasicBlock) & (ring_size - 1);
  // The whole first block at once: most WQEs are no longer.
  DmaStatus status = buffer.read(params_.start + position, wqe.bytes.data(), prm::kWqeBasicBlock);
  if (status == DmaStatus::pending) return TakeStatus::pending;
  if (status == DmaStatus::fault) return TakeStatus::error;
  const auto units = prm::CtrlSegment::ds_count::get(wqe.bytes.data());
  const std::size_t size = units * prm::kWqeUnit;
  const std::size_t blocks = (size + prm::kWqeBasicBlock - 1) / prm::kWqeBasicBlock;
  if (units == 0 || size > ring_size || blocks > static_cast<std::uint16_t>(posted_ - consumed_)) {
    return TakeStatus::error;
  }
  if (blocks > 1) {
    const std::size_t rest = size - prm::kWqeBasicBlock;
    const std::uint64_t next = (position + prm::kWqeBasicBlock) & (ring_size - 1);
    status = buffer.read_ring(params_.start, ring_size, next,
                              wqe.bytes.data() + prm::kWqeBasicBlock, rest);
    if (status == DmaStatus::pending) return TakeStatus::pending;
    if (status == DmaStatus::fault) return TakeStatus::error;
  }
  wqe.index = consumed_;
  wqe.size = static_cast<std::uint16_t>(size);
  consumed_ = static_cast<std::uint16_t>(consumed_ + blocks);
  return TakeStatus::ok;
}

}  // namespace softhca
