// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Counter sets of queue pairs (PRM "Queue Counters").
#include "hw-model/transport/q_counters.h"
#include "hw-model/firmware/handlers.h"
#include "hw-model/prm/commands_resources.h"

namespace softhca::firmware {
namespace {

using prm::CommandStatus;
using Output = prm::QueryQCounterOutput;

/// One counter and where QUERY_Q_COUNTER shows it. Those of transports that the device does not
/// have (RoCE, DC) read as zero.
struct Shown {
  void (*put)(std::uint8_t*, std::uint64_t);
  std::uint32_t QCounters::*counter;
};

constexpr Shown kShown[] = {
    {Output::rx_write_requests::set, &QCounters::rx_write_requests},
    {Output::rx_read_requests::set, &QCounters::rx_read_requests},
    {Output::rx_atomic_requests::set, &QCounters::rx_atomic_requests},
    {Output::out_of_buffer::set, &QCounters::out_of_buffer},
    {Output::out_of_sequence::set, &QCounters::out_of_sequence},
    {Output::duplicate_request::set, &QCounters::duplicate_request},
    {Output::rnr_nak_retry_err::set, &QCounters::rnr_nak_retry_err},
    {Output::packet_seq_err::set, &QCounters::packet_seq_err},
    {Output::implied_nak_seq_err::set, &QCounters::implied_nak_seq_err},
    {Output::local_ack_timeout_err::set, &QCounters::local_ack_timeout_err},
    {Output::resp_local_length_error::set, &QCounters::resp_local_length_error},
    {Output::req_local_length_error::set, &QCounters::req_local_length_error},
    {Output::resp_local_qp_error::set, &QCounters::resp_local_qp_error},
    {Output::local_operation_error::set, &QCounters::local_operation_error},
    {Output::resp_local_protection::set, &QCounters::resp_local_protection},
    {Output::req_local_protection::set, &QCounters::req_local_protection},
    {Output::resp_cqe_error::set, &QCounters::resp_cqe_error},
    {Output::req_cqe_error::set, &QCounters::req_cqe_error},
    {Output::req_mw_binding::set, &QCounters::req_mw_binding},
    {Output::req_bad_response::set, &QCounters::req_bad_response},
    {Output::req_remote_invalid_request::set, &QCounters::req_remote_invalid_request},
    {Output::resp_remote_invalid_request::set, &QCounters::resp_remote_invalid_request},
    {Output::req_remote_access_errors::set, &QCounters::req_remote_access_errors},
    {Output::resp_remote_access_errors::set, &QCounters::resp_remote_access_errors},
    {Output::req_remote_operation_errors::set, &QCounters::req_remote_operation_errors},
    {Output::req_transport_retries_exceeded::set, &QCounters::req_transport_retries_exceeded},
    {Output::cq_overflow::set, &QCounters::cq_overflow},
    {Output::resp_cqe_flush_error::set, &QCounters::resp_cqe_flush_error},
    {Output::req_cqe_flush_error::set, &QCounters::req_cqe_flush_error},
};

}  // namespace

CommandResult alloc_q_counter(FirmwareState& state, const Command& command) {
  const QCounterSet* set = state.transport.create_q_counters(command.uid);
  if (set == nullptr) return failure(CommandStatus::no_resources, Syndrome::out_of_counters);
  prm::AllocQCounterOutput::counter_set_id::set(command.out.data(), set->number);
  return {};
}

CommandResult dealloc_q_counter(FirmwareState& state, const Command& command) {
  const auto set =
      static_cast<std::uint32_t>(prm::DeallocQCounterInput::counter_set_id::get(command.in.data()));
  if (state.transport.destroy_q_counters(set) != DestroyResult::ok) {
    return failure(CommandStatus::bad_resource, Syndrome::no_such_counter);
  }
  return {};
}

CommandResult query_q_counter(FirmwareState& state, const Command& command) {
  const std::uint8_t* in = command.in.data();
  QCounterSet* set = state.transport.q_counters(
      static_cast<std::uint32_t>(prm::QueryQCounterInput::counter_set_id::get(in)));
  if (set == nullptr) return failure(CommandStatus::bad_resource, Syndrome::no_such_counter);
  for (const Shown& shown : kShown) shown.put(command.out.data(), set->counters.*shown.counter);
  if (prm::QueryQCounterInput::clear::get(in) != 0) set->counters = {};
  return {};
}

}  // namespace softhca::firmware
