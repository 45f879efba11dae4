// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Send queues without a transport (PRM "SQ Commands"). An InfiniBand port has no packets for them:
// they execute local operations, which is what drivers test write combining with.
#include "hw-model/firmware/handlers.h"
#include "hw-model/firmware/queue_memory.h"
#include "hw-model/prm/commands_sq.h"

namespace softhca::firmware {
namespace {

using prm::CommandStatus;
using prm::SqContext;
using prm::SqState;
using prm::WqContext;

constexpr std::uint64_t kLogBasicBlock = 6;
constexpr std::uint64_t kSendWord = 4;  ///< Of the doorbell record, in bytes.

CommandResult bad_parameter(Syndrome syndrome) {
  return failure(CommandStatus::bad_parameter, syndrome);
}
CommandResult bad_resource(Syndrome syndrome) {
  return failure(CommandStatus::bad_resource, syndrome);
}

CommandResult read_queue(FirmwareState& state, const Command& command, QpParams& params,
                         SqRecord& record) {
  const std::uint8_t* wq = SqContext::wq::at(prm::CreateSqInput::ctx::at(command.in.data()));
  if (WqContext::wq_type::get(wq) != static_cast<unsigned>(prm::WqType::cyclic)) {
    return bad_parameter(Syndrome::bad_wq_type);
  }
  if (WqContext::wq_umem_valid::get(wq) != 0 || WqContext::dbr_umem_valid::get(wq) != 0) {
    return bad_parameter(Syndrome::umem_not_supported);
  }
  if (WqContext::log_wq_stride::get(wq) != kLogBasicBlock) {
    return bad_parameter(Syndrome::bad_wqe_stride);
  }
  if (WqContext::log_wq_sz::get(wq) > DeviceLimits::kLogMaxQpSize) {
    return bad_parameter(Syndrome::bad_queue_size);
  }
  const std::uint64_t doorbell = WqContext::dbr_addr::get(wq);
  if (doorbell % 8 != 0) return bad_parameter(Syndrome::bad_doorbell_record);
  record.log_page_size = static_cast<std::uint8_t>(WqContext::log_wq_pg_sz::get(wq));
  record.uar = state.uars.ref(static_cast<std::uint32_t>(WqContext::uar_page::get(wq)));
  if (!record.uar) return bad_resource(Syndrome::no_such_uar);
  params.sq.log_size = static_cast<std::uint8_t>(WqContext::log_wq_sz::get(wq));
  params.sq.doorbell_record = doorbell + kSendWord;
  const QueueMemory memory{
      .pas = tail(command.in, prm::CreateSqInput::ctx::offset + SqContext::pas_offset),
      .log_page_size = record.log_page_size,
      .page_offset = WqContext::page_offset::get(wq),
      .bytes = std::uint64_t{1} << (kLogBasicBlock + params.sq.log_size)};
  const Syndrome bad = make_queue_buffer(state.dma, memory, params.buffer);
  return bad == Syndrome::none ? CommandResult{} : bad_parameter(bad);
}

CommandResult apply(FirmwareState& state, std::uint32_t sqn, QpTransition transition) {
  const ModifyResult result = state.transport.modify_qp(sqn, transition, {}, 0);
  if (result == ModifyResult::ok) return {};
  return failure(CommandStatus::bad_qp_state, Syndrome::bad_qp_transition);
}

SqState state_of(FirmwareState& state, std::uint32_t sqn) {
  const auto snapshot = state.transport.query_qp(sqn);
  if (!snapshot || snapshot->state == prm::QpState::error) return SqState::error;
  return snapshot->state == prm::QpState::rts ? SqState::ready : SqState::reset;
}

}  // namespace

CommandResult create_sq(FirmwareState& state, const Command& command) {
  if (state.pages.exhausted()) {
    return failure(CommandStatus::no_resources, Syndrome::pages_withheld);
  }
  const std::uint8_t* context = prm::CreateSqInput::ctx::at(command.in.data());
  // It executes local operations with a kernel's rights.
  if (command.uid != 0) {
    return bad_parameter(Syndrome::bad_user_context);
  }
  if (SqContext::state::get(context) != static_cast<unsigned>(SqState::reset)) {
    return bad_parameter(Syndrome::bad_qp_transition);
  }
  QpParams params;
  SqRecord record;
  params.type = prm::QpServiceType::reg_umr;
  params.has_rq = false;
  params.user_index = static_cast<std::uint32_t>(SqContext::user_index::get(context));
  params.send_cq =
      state.transport.cqs().ref(static_cast<std::uint32_t>(SqContext::cqn::get(context)));
  if (!params.send_cq) return bad_resource(Syndrome::no_such_cq);
  params.recv_cq = state.transport.cqs().ref(params.send_cq->number());
  if (const CommandResult bad = read_queue(state, command, params, record); !bad.ok()) return bad;
  const auto sqn = state.transport.create_qp(std::move(params));
  if (!sqn) return failure(CommandStatus::no_resources, Syndrome::out_of_qps);
  state.sq_records[*sqn] = std::move(record);
  prm::CreateSqOutput::sqn::set(command.out.data(), *sqn);
  return {};
}

CommandResult modify_sq(FirmwareState& state, const Command& command) {
  const std::uint8_t* in = command.in.data();
  const auto sqn = static_cast<std::uint32_t>(prm::ModifySqInput::sqn::get(in));
  if (!state.sq_records.contains(sqn)) return bad_resource(Syndrome::no_such_qp);
  const SqState now = state_of(state, sqn);
  if (prm::ModifySqInput::sq_state::get(in) != static_cast<unsigned>(now)) {
    return failure(CommandStatus::bad_qp_state, Syndrome::bad_qp_transition);
  }
  const auto wanted = static_cast<SqState>(SqContext::state::get(prm::ModifySqInput::ctx::at(in)));
  if (wanted == now) return {};
  if (wanted == SqState::reset) return apply(state, sqn, QpTransition::to_reset);
  if (wanted == SqState::error && now == SqState::ready) {
    return apply(state, sqn, QpTransition::to_error);
  }
  if (wanted != SqState::ready || now != SqState::reset) {
    return failure(CommandStatus::bad_qp_state, Syndrome::bad_qp_transition);
  }
  for (const QpTransition step :
       {QpTransition::reset_to_init, QpTransition::init_to_rtr, QpTransition::rtr_to_rts}) {
    if (const CommandResult bad = apply(state, sqn, step); !bad.ok()) return bad;
  }
  return {};
}

CommandResult destroy_sq(FirmwareState& state, const Command& command) {
  const auto sqn = static_cast<std::uint32_t>(prm::DestroySqInput::sqn::get(command.in.data()));
  if (!state.sq_records.contains(sqn)) return bad_resource(Syndrome::no_such_qp);
  state.transport.destroy_qp(sqn);
  state.sq_records.erase(sqn);
  return {};
}

CommandResult query_sq(FirmwareState& state, const Command& command) {
  const auto sqn = static_cast<std::uint32_t>(prm::QuerySqInput::sqn::get(command.in.data()));
  const auto record = state.sq_records.find(sqn);
  const QpParams* params = state.transport.qp_params(sqn);
  if (record == state.sq_records.end() || params == nullptr) {
    return bad_resource(Syndrome::no_such_qp);
  }
  std::uint8_t* context = prm::QuerySqOutput::sq_context::at(command.out.data());
  SqContext::flush_in_error_en::set(context, 1);
  SqContext::state::set(context, static_cast<unsigned>(state_of(state, sqn)));
  SqContext::user_index::set(context, params->user_index);
  SqContext::cqn::set(context, params->send_cq->number());
  std::uint8_t* wq = SqContext::wq::at(context);
  WqContext::wq_type::set(wq, static_cast<unsigned>(prm::WqType::cyclic));
  WqContext::uar_page::set(wq, record->second.uar->number);
  WqContext::dbr_addr::set(wq, params->sq.doorbell_record - kSendWord);
  WqContext::log_wq_stride::set(wq, kLogBasicBlock);
  WqContext::log_wq_pg_sz::set(wq, record->second.log_page_size);
  WqContext::log_wq_sz::set(wq, params->sq.log_size);
  return {};
}

}  // namespace softhca::firmware
