// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/queues/shared_receive_queue.h"

#include <algorithm>
#include <array>
#include <utility>

#include "hw-model/prm/wqe.h"

namespace softhca {
namespace {

constexpr std::uint32_t kMinStride = 32;
constexpr std::uint32_t kMaxStride = 1024;

}  // namespace

SharedReceiveQueue::SharedReceiveQueue(std::uint32_t number, DmaSpace& dma, AsyncEvents& events,
                                       SrqParams params)
    : number_(number), dma_(dma), events_(events), params_(std::move(params)) {
  params_.ring.stride = std::clamp(params_.ring.stride, kMinStride, kMaxStride);
}

TakeStatus SharedReceiveQueue::fail() {
  if (!error_) events_.srq_event(EventType::srq_catastrophic, number_);
  error_ = true;
  return TakeStatus::error;
}

TakeStatus SharedReceiveQueue::refresh() {
  std::uint32_t word = 0;
  const DmaStatus status = dma_.load_be32(params_.ring.doorbell_record, word);
  if (status == DmaStatus::pending) return TakeStatus::pending;
  if (status == DmaStatus::fault) return fail();
  posted_ = static_cast<std::uint16_t>(word);
  const auto waiting = static_cast<std::uint16_t>(posted_ - consumed_);
  if (waiting > 1U << params_.ring.log_size) return fail();
  return waiting == 0 ? TakeStatus::empty : TakeStatus::ok;
}

std::uint16_t SharedReceiveQueue::available() {
  if (error_ || refresh() != TakeStatus::ok) return 0;
  return static_cast<std::uint16_t>(posted_ - consumed_);
}

TakeStatus SharedReceiveQueue::take(ReceiveWqe& wqe) {
  if (error_) return TakeStatus::error;
  if (posted_ == consumed_ || params_.limit != 0) {
    const TakeStatus status = refresh();
    if (status != TakeStatus::ok) return status;
  }
  std::array<std::uint8_t, kMaxStride> bytes;
  const DmaStatus status = params_.buffer.read(std::uint64_t{head_} * params_.ring.stride,
                                               bytes.data(), params_.ring.stride);
  if (status == DmaStatus::pending) return TakeStatus::pending;
  if (status == DmaStatus::fault) return fail();
  const auto next = static_cast<std::uint16_t>(prm::NextSegment::next_wqe_index::get(bytes.data()));
  if (next >= 1U << params_.ring.log_size) return fail();
  parse_scatter_list(bytes.data() + prm::NextSegment::size,
                     params_.ring.stride - prm::NextSegment::size, wqe);
  wqe.index = head_;
  head_ = next;
  ++consumed_;
  // The event comes when the number drops below the limit, once (IBA 10.2.9.2).
  if (params_.limit != 0 && static_cast<std::uint16_t>(posted_ - consumed_) < params_.limit) {
    params_.limit = 0;
    events_.srq_event(EventType::srq_limit, number_);
  }
  return TakeStatus::ok;
}

}  // namespace softhca
