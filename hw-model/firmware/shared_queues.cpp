// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/firmware/shared_queues.h"

#include "hw-model/firmware/queue_memory.h"

namespace softhca::firmware {
namespace {

using prm::CommandStatus;

constexpr std::uint64_t kMinLogStride = 5;  // a link of 16 bytes and one scatter entry

}  // namespace

Syndrome read_shared_queue(FirmwareState& state, const SharedQueueShape& shape, SrqParams& params) {
  if (shape.log_size > DeviceLimits::kLogMaxSrqSize) return Syndrome::bad_queue_size;
  if (shape.log_stride < kMinLogStride || 1ULL << shape.log_stride > DeviceLimits::kMaxReceiveWqe) {
    return Syndrome::bad_wqe_stride;
  }
  if (shape.doorbell_record % 8 != 0) return Syndrome::bad_doorbell_record;
  if (params.limit > 1ULL << shape.log_size) return Syndrome::bad_limit;
  params.ring.start = 0;
  params.ring.log_size = static_cast<std::uint8_t>(shape.log_size);
  params.ring.stride = 1U << shape.log_stride;
  params.ring.doorbell_record = shape.doorbell_record;
  const QueueMemory memory{.pas = shape.pas,
                           .log_page_size = shape.log_page_size,
                           .page_offset = shape.page_offset,
                           .bytes = 1ULL << (shape.log_stride + shape.log_size)};
  return make_queue_buffer(state.dma, memory, params.buffer);
}

SharedReceiveQueue* find_shared_queue(FirmwareState& state, SrqKind kind, std::uint32_t number) {
  const auto record = state.srq_records.find(number);
  if (record == state.srq_records.end() || record->second.kind != kind) return nullptr;
  return state.transport.srqs().find(number);
}

CommandResult destroy_shared_queue(FirmwareState& state, SrqKind kind, std::uint64_t number) {
  const auto srqn = static_cast<std::uint32_t>(number);
  if (find_shared_queue(state, kind, srqn) == nullptr) {
    return failure(CommandStatus::bad_resource, Syndrome::no_such_srq);
  }
  if (state.transport.destroy_srq(srqn) != DestroyResult::ok) {
    return failure(CommandStatus::bad_resource_state, Syndrome::srq_in_use);
  }
  state.srq_records.erase(srqn);
  return {};
}

CommandResult arm_shared_queue(FirmwareState& state, SrqKind kind, std::uint32_t number,
                               std::uint64_t limit) {
  SharedReceiveQueue* srq = find_shared_queue(state, kind, number);
  if (srq == nullptr) return failure(CommandStatus::bad_resource, Syndrome::no_such_srq);
  if (limit > 1ULL << srq->params().ring.log_size)
    return failure(CommandStatus::bad_parameter, Syndrome::bad_limit);
  srq->arm_limit(static_cast<std::uint16_t>(limit));
  return {};
}

}  // namespace softhca::firmware
