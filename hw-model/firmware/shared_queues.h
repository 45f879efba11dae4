// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "hw-model/firmware/command.h"
#include "hw-model/firmware/firmware_state.h"

/// What the three kinds of shared receive queue have in common: SRQ, XRC SRQ and RMP.
namespace softhca::firmware {

/// Queue memory as the contexts describe it, in one form.
struct SharedQueueShape {
  std::uint64_t log_size = 0;    ///< WQEs.
  std::uint64_t log_stride = 0;  ///< Bytes.
  std::uint64_t doorbell_record = 0;
  std::span<const std::uint8_t> pas;
  std::uint64_t log_page_size = 0;
  std::uint64_t page_offset = 0;
};

/// Checks sizes, limit and memory and fills ring and buffer; params.limit is set already.
Syndrome read_shared_queue(FirmwareState& state, const SharedQueueShape& shape, SrqParams& params);

/// Null unless the queue exists and is of this kind.
SharedReceiveQueue* find_shared_queue(FirmwareState& state, SrqKind kind, std::uint32_t number);
CommandResult destroy_shared_queue(FirmwareState& state, SrqKind kind, std::uint64_t number);
/// Event once when fewer than `limit` WQEs are left; 0 disarms.
CommandResult arm_shared_queue(FirmwareState& state, SrqKind kind, std::uint32_t number,
                               std::uint64_t limit);

template <typename NumberField>
CommandResult create_shared_queue(FirmwareState& state, const Command& command, SrqParams params,
                                  SrqRecord record) {
  if (state.pages.exhausted())
    return failure(prm::CommandStatus::no_resources, Syndrome::pages_withheld);
  const SharedReceiveQueue* srq = state.transport.create_srq(std::move(params));
  if (srq == nullptr) return failure(prm::CommandStatus::no_resources, Syndrome::out_of_srqs);
  state.srq_records[srq->number()] = std::move(record);
  NumberField::set(command.out.data(), srq->number());
  return {};
}

}  // namespace softhca::firmware
