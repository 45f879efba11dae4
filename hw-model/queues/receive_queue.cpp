// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/queues/receive_queue.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "hw-model/prm/wqe.h"

namespace softhca {
namespace {

constexpr std::uint32_t kMaxWqeStride = 1024;

}  // namespace

void parse_scatter_list(const std::uint8_t* bytes, std::size_t length, ReceiveWqe& wqe) {
  wqe.entries.clear();
  wqe.capacity = 0;
  for (std::size_t at = 0; at + prm::DataSegment::size <= length; at += prm::DataSegment::size) {
    const std::uint8_t* segment = bytes + at;
    DataEntry entry;
    entry.lkey = static_cast<std::uint32_t>(prm::DataSegment::lkey::get(segment));
    if (entry.lkey == prm::kInvalidLkey) break;
    entry.length = static_cast<std::uint32_t>(prm::DataSegment::byte_count::get(segment));
    if (entry.length == 0) entry.length = 1U << 31;
    entry.address = prm::DataSegment::address::get(segment);
    wqe.capacity += entry.length;
    wqe.entries.push_back(entry);
  }
}

ReceiveQueue::ReceiveQueue(DmaSpace& dma, ReceiveQueueParams params) : dma_(&dma), params_(params) {
  params_.stride = std::clamp<std::uint32_t>(params_.stride, 16, kMaxWqeStride);
}

TakeStatus ReceiveQueue::take(QueueBuffer& buffer, ReceiveWqe& wqe) {
  if (dma_ == nullptr) return TakeStatus::empty;
  if (posted_ == consumed_) {
    std::uint32_t word = 0;
    const DmaStatus status = record_.load(*dma_, params_.doorbell_record, word);
    if (status == DmaStatus::pending) return TakeStatus::pending;
    if (status == DmaStatus::fault) return TakeStatus::error;
    posted_ = static_cast<std::uint16_t>(word);
    if (posted_ == consumed_) return TakeStatus::empty;
  }
  const std::uint32_t size = 1U << params_.log_size;
  if (static_cast<std::uint16_t>(posted_ - consumed_) > size) return TakeStatus::error;

  std::array<std::uint8_t, kMaxWqeStride> bytes;
  const std::uint64_t offset =
      params_.start + std::uint64_t{consumed_ & (size - 1)} * params_.stride;
  const DmaStatus status = buffer.read(offset, bytes.data(), params_.stride);
  if (status == DmaStatus::pending) return TakeStatus::pending;
  if (status == DmaStatus::fault) return TakeStatus::error;
  const std::size_t skip = params_.signature ? 16 : 0;
  parse_scatter_list(bytes.data() + skip, params_.stride - skip, wqe);
  wqe.index = consumed_;
  ++consumed_;
  return TakeStatus::ok;
}

}  // namespace softhca
