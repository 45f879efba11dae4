// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include "hw-model/prm/field.h"

namespace softhca::prm {

/// Event queue entry. The owner byte is written last.
struct Eqe {
  static constexpr std::size_t size = 0x40;

  using event_type = Field<0x8, 8>;  ///< EventType.
  using event_sub_type = Field<0x18, 8>;
  using event_data = Block<0x20, 0x1c>;  ///< By event type; the layouts below start here.
  using signature = Field<0x1f0, 8>;
  using owner = Field<0x1ff, 1>;  ///< Toggles with each pass over the queue; 0 in the first.
};

/// Eqe::event_type. The event bitmask of CREATE_EQ has one bit for each.
enum class EventType : std::uint8_t {
  completion = 0x00,
  path_migrated = 0x01,
  communication_established = 0x02,
  sq_drained = 0x03,
  cq_error = 0x04,
  wq_catastrophic = 0x05,
  path_migration_failed = 0x07,
  internal_error = 0x08,
  port_change = 0x09,
  command_completion = 0x0a,
  page_request = 0x0b,
  page_fault = 0x0c,
  wq_invalid_request = 0x10,
  wq_access_error = 0x11,
  srq_catastrophic = 0x12,
  srq_last_wqe = 0x13,
  srq_limit = 0x14,
};

/// EventType::completion.
struct CompletionEventData {
  static constexpr std::size_t size = 0x1c;

  using cqn = Field<0xc8, 24>;
};

/// EventType::command_completion.
struct CommandEventData {
  static constexpr std::size_t size = 0x1c;

  using vector = Field<0x0, 32>;  ///< Bit per finished slot.
};

/// QP and SRQ events.
struct QpSrqEventData {
  static constexpr std::size_t size = 0x1c;

  using type = Field<0xa0, 8>;  ///< 0 QP, 1 RQ, 2 SQ; for SRQ events 0.
  using qp_srq_n = Field<0xc8, 24>;
};

/// EventType::cq_error.
struct CqErrorEventData {
  static constexpr std::size_t size = 0x1c;

  using cqn = Field<0x8, 24>;
  using syndrome = Field<0x58, 8>;  ///< 1 overrun, 2 access violation.
};

/// EventType::port_change; the kind is in event_sub_type (ib::PortEvent).
struct PortChangeEventData {
  static constexpr std::size_t size = 0x1c;

  using port_num = Field<0x40, 4>;  ///< 1 based.
};

/// EventType::page_request.
struct PageRequestEventData {
  static constexpr std::size_t size = 0x1c;

  using function_id = Field<0x10, 16>;
  using num_pages = Field<0x20, 32>;  ///< Signed: positive to give, negative to take.
};

/// Position of the data of an event inside its Eqe.
static_assert(Eqe::event_data::offset == 0x20);

}  // namespace softhca::prm
