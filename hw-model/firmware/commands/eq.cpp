// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Event queues (PRM "EQ Commands").
#include "hw-model/firmware/handlers.h"
#include "hw-model/firmware/queue_memory.h"
#include "hw-model/prm/commands_queues.h"
#include "hw-model/prm/eq_context.h"

namespace softhca::firmware {
namespace {

using prm::CommandStatus;
using prm::EqContext;
using EventMask = prm::Field<0, 64>;  ///< First word of event_bitmask: event types 0 to 63.

}  // namespace

CommandResult create_eq(FirmwareState& state, const Command& command) {
  const std::uint8_t* context = prm::CreateEqInput::eq_context_entry::at(command.in.data());
  EqParams params;
  params.log_size = static_cast<std::uint8_t>(EqContext::log_eq_size::get(context));
  if (params.log_size > DeviceLimits::kLogMaxEqSize) {
    return failure(CommandStatus::bad_parameter, Syndrome::bad_queue_size);
  }
  params.vector = static_cast<std::uint16_t>(EqContext::intr::get(context));
  if (params.vector >= state.config.num_msix)
    return failure(CommandStatus::bad_parameter, Syndrome::bad_vector);
  params.event_mask = EventMask::get(prm::CreateEqInput::event_bitmask::at(command.in.data()));
  params.always_armed = state.eqs_always_armed;

  EqRecord record;
  record.uar = state.uars.ref(static_cast<std::uint32_t>(EqContext::uar_page::get(context)));
  if (!record.uar) return failure(CommandStatus::bad_resource, Syndrome::no_such_uar);

  const QueueMemory memory{.pas = tail(command.in, prm::CreateEqInput::pas_offset),
                           .log_page_size = EqContext::log_page_size::get(context),
                           .page_offset = EqContext::page_offset::get(context),
                           .bytes = EventQueue::kEntrySize << params.log_size};
  if (const Syndrome bad = make_queue_buffer(state.dma, memory, params.buffer);
      bad != Syndrome::none) {
    return failure(CommandStatus::bad_parameter, bad);
  }
  EventQueue* eq = state.eqs.emplace(std::move(params), state.interrupts);
  if (eq == nullptr) return failure(CommandStatus::no_resources, Syndrome::out_of_eqs);
  state.eq_records[eq->number()] = std::move(record);
  prm::CreateEqOutput::eq_number::set(command.out.data(), eq->number());
  return {};
}

CommandResult destroy_eq(FirmwareState& state, const Command& command) {
  const auto number =
      static_cast<std::uint32_t>(prm::DestroyEqInput::eq_number::get(command.in.data()));
  switch (state.eqs.destroy(number)) {
    case DestroyResult::not_found:
      return failure(CommandStatus::bad_resource, Syndrome::no_such_eq);
    case DestroyResult::in_use:
      return failure(CommandStatus::bad_resource_state, Syndrome::eq_in_use);
    case DestroyResult::ok:
      break;
  }
  state.eq_records.erase(number);
  return {};
}

CommandResult query_eq(FirmwareState& state, const Command& command) {
  const auto number =
      static_cast<std::uint32_t>(prm::QueryEqInput::eq_number::get(command.in.data()));
  const EventQueue* eq = state.eqs.find(number);
  if (eq == nullptr) return failure(CommandStatus::bad_resource, Syndrome::no_such_eq);
  std::uint8_t* context = prm::QueryEqOutput::eq_context_entry::at(command.out.data());
  EqContext::status::set(context, static_cast<unsigned>(eq->overrun() ? prm::EqStatus::write_failure
                                                                      : prm::EqStatus::ok));
  EqContext::st::set(
      context, static_cast<unsigned>(eq->armed() ? prm::EqState::armed : prm::EqState::fired));
  EqContext::log_eq_size::set(context, eq->params().log_size);
  EqContext::uar_page::set(context, state.eq_records[number].uar->number);
  EqContext::intr::set(context, eq->params().vector);
  EqContext::consumer_counter::set(context, eq->consumer_index());
  EqContext::producer_counter::set(context, eq->producer_index());
  prm::QueryEqOutput::event_bitmask::set(command.out.data(), eq->params().event_mask);
  return {};
}

}  // namespace softhca::firmware
