// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/queues/send_queue.h"

#include <cstring>

namespace softhca {
namespace {

/// Length of the WQE whose control segment is in `bytes`; 0: malformed.
std::size_t wqe_size(const std::uint8_t* bytes) {
  return prm::CtrlSegment::ds_count::get(bytes) * prm::kWqeUnit;
}

std::size_t basic_blocks(std::size_t size) {
  return (size + prm::kWqeBasicBlock - 1) / prm::kWqeBasicBlock;
}

}  // namespace

SendQueue::SendQueue(DmaSpace& dma, SendQueueParams params)
    : dma_(&dma),
      params_(params),
      blocks_(1U << params.log_size),
      ring_mask_((std::uint64_t{prm::kWqeBasicBlock} << params.log_size) - 1) {}

void SendQueue::look_up(QueueBuffer& buffer) {
  generation_ = dma_->generation();
  ring_ = buffer.direct(params_.start, ring_mask_ + 1);
}

bool SendQueue::take_copy(RawSendWqe& wqe, std::size_t& size) {
  if (copy_.size() < prm::CtrlSegment::size) return false;
  const auto index = static_cast<std::uint16_t>(prm::CtrlSegment::wqe_index::get(copy_.data()));
  size = wqe_size(copy_.data());
  const bool early = static_cast<std::int16_t>(index - consumed_) > 0;
  const bool fits = index == consumed_ && size <= copy_.size();
  if (fits) std::memcpy(wqe.bytes.data(), copy_.data(), size);
  // Its WQE was taken from the ring: indexes repeat, so it must not stay.
  if (!early) copy_.clear();
  return fits;
}

TakeStatus SendQueue::read(QueueBuffer& buffer, RawSendWqe& wqe, std::size_t& size) {
  const std::uint64_t ring_size = prm::kWqeBasicBlock << params_.log_size;
  const std::uint64_t position = (consumed_ * prm::kWqeBasicBlock) & (ring_size - 1);
  // The whole first block at once: most WQEs are no longer.
  DmaStatus status = DmaStatus::ok;
  if (const std::byte* block = buffer.direct(params_.start + position, prm::kWqeBasicBlock)) {
    std::memcpy(wqe.bytes.data(), block, prm::kWqeBasicBlock);
  } else {
    status = buffer.read(params_.start + position, wqe.bytes.data(), prm::kWqeBasicBlock);
  }
  if (status == DmaStatus::pending) return TakeStatus::pending;
  if (status == DmaStatus::fault) return TakeStatus::error;
  size = wqe_size(wqe.bytes.data());
  if (size > ring_size) return TakeStatus::error;
  if (size <= prm::kWqeBasicBlock) return TakeStatus::ok;
  const std::uint64_t next = (position + prm::kWqeBasicBlock) & (ring_size - 1);
  status = buffer.read_ring(params_.start, ring_size, next, wqe.bytes.data() + prm::kWqeBasicBlock,
                            size - prm::kWqeBasicBlock);
  if (status == DmaStatus::pending) return TakeStatus::pending;
  return status == DmaStatus::fault ? TakeStatus::error : TakeStatus::ok;
}

TakeStatus SendQueue::take(QueueBuffer& buffer, RawSendWqe& wqe) {
  if (dma_ == nullptr || !has_work()) return TakeStatus::empty;
  std::size_t size = 0;
  if (copy_.empty() || !take_copy(wqe, size)) {
    const TakeStatus status = read(buffer, wqe, size);
    if (status != TakeStatus::ok) return status;
  }
  const std::size_t blocks = basic_blocks(size);
  if (size == 0 || blocks > static_cast<std::uint16_t>(posted_ - consumed_)) {
    return TakeStatus::error;
  }
  wqe.index = consumed_;
  wqe.size = static_cast<std::uint16_t>(size);
  consumed_ = static_cast<std::uint16_t>(consumed_ + blocks);
  return TakeStatus::ok;
}

}  // namespace softhca
