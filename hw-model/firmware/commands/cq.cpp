// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Completion queues (PRM "CQ Commands").
#include "hw-model/firmware/handlers.h"
#include "hw-model/firmware/queue_memory.h"
#include "hw-model/prm/commands_queues.h"
#include "hw-model/prm/cq_context.h"

namespace softhca::firmware {
namespace {

using prm::CommandStatus;
using prm::CqContext;

constexpr std::uint64_t kEqnMask = 0xff;  // c_eqn_or_apu_element
constexpr std::size_t kCqeSize = 64;

/// Size, CQE size and memory of a CQ: shared by CREATE_CQ and resize.
struct CqShape {
  QueueBuffer buffer;
  std::uint8_t log_size = 0;
  bool cqe128 = false;
};

Syndrome read_shape(FirmwareState& state, const std::uint8_t* context,
                    std::span<const std::uint8_t> pas, CqShape& shape) {
  const std::uint64_t log_size = CqContext::log_cq_size::get(context);
  if (log_size > DeviceLimits::kLogMaxCqSize) return Syndrome::bad_queue_size;
  const std::uint64_t cqe_size = CqContext::cqe_sz::get(context);
  if (cqe_size > 1 || CqContext::cqe_comp_en::get(context) != 0) return Syndrome::bad_cqe_size;
  shape.log_size = static_cast<std::uint8_t>(log_size);
  shape.cqe128 = cqe_size == 1;
  const QueueMemory memory{.pas = pas,
                           .log_page_size = CqContext::log_page_size::get(context),
                           .page_offset = CqContext::page_offset::get(context),
                           .bytes = (shape.cqe128 ? 2 * kCqeSize : kCqeSize) << log_size};
  return make_queue_buffer(state.dma, memory, shape.buffer);
}

CommandResult modify_fields(FirmwareState& state, CompletionQueue& cq, const std::uint8_t* context,
                            std::uint64_t select) {
  constexpr std::uint32_t kKnown =
      prm::kCqModifyPeriod | prm::kCqModifyMaxCount | prm::kCqModifyEqn | prm::kCqModifyPeriodMode;
  if ((select & ~std::uint64_t{kKnown}) != 0) {
    return failure(CommandStatus::bad_parameter, Syndrome::bad_modify_field);
  }
  if ((select & prm::kCqModifyEqn) != 0) {
    auto eq = state.eqs.ref(
        static_cast<std::uint32_t>(CqContext::c_eqn_or_apu_element::get(context) & kEqnMask));
    if (!eq) return failure(CommandStatus::bad_resource, Syndrome::no_such_eq);
    cq.set_eq(std::move(eq));
  }
  std::uint16_t period = cq.params().period_us;
  std::uint16_t count = cq.params().max_count;
  if ((select & prm::kCqModifyPeriod) != 0)
    period = static_cast<std::uint16_t>(CqContext::cq_period::get(context));
  if ((select & prm::kCqModifyMaxCount) != 0) {
    count = static_cast<std::uint16_t>(CqContext::cq_max_count::get(context));
  }
  cq.set_moderation(period, count);
  return {};
}

CommandResult resize(FirmwareState& state, CompletionQueue& cq, const Command& command,
                     std::uint64_t select) {
  constexpr std::uint32_t kKnown =
      prm::kCqResizeLogSize | prm::kCqResizePageOffset | prm::kCqResizeLogPageSize;
  if (select != kKnown) return failure(CommandStatus::bad_parameter, Syndrome::bad_modify_field);
  const std::uint8_t* context = prm::ModifyCqInput::cq_context::at(command.in.data());
  CqShape shape;
  const Syndrome bad =
      read_shape(state, context, tail(command.in, prm::ModifyCqInput::pas_offset), shape);
  if (bad != Syndrome::none) return failure(CommandStatus::bad_parameter, bad);
  if (!cq.resize(std::move(shape.buffer), shape.log_size, shape.cqe128)) {
    return failure(CommandStatus::bad_size_outstanding_cqes, Syndrome::cq_too_small_for_contents);
  }
  state.cq_records[cq.number()].log_page_size =
      static_cast<std::uint8_t>(CqContext::log_page_size::get(context));
  return {};
}

}  // namespace

CommandResult create_cq(FirmwareState& state, const Command& command) {
  if (state.pages.exhausted())
    return failure(CommandStatus::no_resources, Syndrome::pages_withheld);
  if (prm::CreateCqInput::cq_umem_valid::get(command.in.data()) != 0) {
    return failure(CommandStatus::bad_parameter, Syndrome::umem_not_supported);
  }
  const std::uint8_t* context = prm::CreateCqInput::cq_context::at(command.in.data());
  CqParams params;
  params.eq = state.eqs.ref(
      static_cast<std::uint32_t>(CqContext::c_eqn_or_apu_element::get(context) & kEqnMask));
  if (!params.eq) return failure(CommandStatus::bad_resource, Syndrome::no_such_eq);
  CqRecord record;
  record.uar = state.uars.ref(static_cast<std::uint32_t>(CqContext::uar_page::get(context)));
  if (!record.uar) return failure(CommandStatus::bad_resource, Syndrome::no_such_uar);
  record.log_page_size = static_cast<std::uint8_t>(CqContext::log_page_size::get(context));
  params.doorbell_record = CqContext::dbr_addr::get(context);
  if (params.doorbell_record % 8 != 0) {
    return failure(CommandStatus::bad_parameter, Syndrome::bad_doorbell_record);
  }
  CqShape shape;
  const Syndrome bad =
      read_shape(state, context, tail(command.in, prm::CreateCqInput::pas_offset), shape);
  if (bad != Syndrome::none) return failure(CommandStatus::bad_parameter, bad);
  params.buffer = std::move(shape.buffer);
  params.log_size = shape.log_size;
  params.cqe128 = shape.cqe128;
  params.overrun_ignore = CqContext::oi::get(context) != 0;
  params.collapsed = CqContext::cc::get(context) != 0;
  params.period_us = static_cast<std::uint16_t>(CqContext::cq_period::get(context));
  params.max_count = static_cast<std::uint16_t>(CqContext::cq_max_count::get(context));
  CompletionQueue* cq = state.transport.create_cq(std::move(params));
  if (cq == nullptr) return failure(CommandStatus::no_resources, Syndrome::out_of_cqs);
  if (state.cq_records_watched) cq->watch_record();
  state.cq_records[cq->number()] = std::move(record);
  prm::CreateCqOutput::cqn::set(command.out.data(), cq->number());
  return {};
}

CommandResult destroy_cq(FirmwareState& state, const Command& command) {
  const auto cqn = static_cast<std::uint32_t>(prm::DestroyCqInput::cqn::get(command.in.data()));
  switch (state.transport.destroy_cq(cqn)) {
    case DestroyResult::not_found:
      return failure(CommandStatus::bad_resource, Syndrome::no_such_cq);
    case DestroyResult::in_use:
      return failure(CommandStatus::bad_resource_state, Syndrome::cq_in_use);
    case DestroyResult::ok:
      break;
  }
  state.cq_records.erase(cqn);
  return {};
}

CommandResult query_cq(FirmwareState& state, const Command& command) {
  const auto cqn = static_cast<std::uint32_t>(prm::QueryCqInput::cqn::get(command.in.data()));
  CompletionQueue* cq = state.transport.cqs().find(cqn);
  if (cq == nullptr) return failure(CommandStatus::bad_resource, Syndrome::no_such_cq);
  const CqRecord& record = state.cq_records[cqn];
  const CqParams& params = cq->params();
  std::uint8_t* context = prm::QueryCqOutput::cq_context::at(command.out.data());
  CqContext::status::set(
      context, static_cast<unsigned>(cq->in_error() ? prm::CqStatus::overflow : prm::CqStatus::ok));
  prm::CqState st = prm::CqState::fired;
  if (cq->arm_state() == CompletionQueue::ArmState::armed) st = prm::CqState::armed;
  if (cq->arm_state() == CompletionQueue::ArmState::solicited_armed)
    st = prm::CqState::solicited_armed;
  CqContext::st::set(context, static_cast<unsigned>(st));
  CqContext::cqe_sz::set(context, params.cqe128 ? 1 : 0);
  CqContext::cc::set(context, params.collapsed ? 1 : 0);
  CqContext::oi::set(context, params.overrun_ignore ? 1 : 0);
  CqContext::log_cq_size::set(context, params.log_size);
  CqContext::uar_page::set(context, record.uar->number);
  CqContext::cq_period::set(context, params.period_us);
  CqContext::cq_max_count::set(context, params.max_count);
  if (params.eq) CqContext::c_eqn_or_apu_element::set(context, params.eq->number());
  CqContext::log_page_size::set(context, record.log_page_size);
  CqContext::last_notified_index::set(context, cq->last_notified_index());
  CqContext::last_solicit_index::set(context, cq->last_solicited_index());
  CqContext::consumer_counter::set(context, cq->consumer_index());
  CqContext::producer_counter::set(context, cq->producer_index());
  CqContext::dbr_addr::set(context, params.doorbell_record);
  return {};
}

CommandResult modify_cq(FirmwareState& state, const Command& command) {
  const std::uint8_t* in = command.in.data();
  CompletionQueue* cq =
      state.transport.cqs().find(static_cast<std::uint32_t>(prm::ModifyCqInput::cqn::get(in)));
  if (cq == nullptr) return failure(CommandStatus::bad_resource, Syndrome::no_such_cq);
  const std::uint64_t select =
      prm::Field<0, 32>::get(prm::ModifyCqInput::modify_field_select_resize_field_select::at(in));
  switch (command.op_mod) {
    case 0:
      return modify_fields(state, *cq, prm::ModifyCqInput::cq_context::at(in), select);
    case 1:
      return resize(state, *cq, command, select);
    default:
      return failure(CommandStatus::bad_parameter, Syndrome::bad_op_mod);
  }
}

}  // namespace softhca::firmware
