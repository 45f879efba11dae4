// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Receive memory pools: what drivers use as SRQ since ISSI 1 (PRM "RMP Commands").
#include <bit>

#include "hw-model/firmware/handlers.h"
#include "hw-model/firmware/queue_memory.h"
#include "hw-model/firmware/shared_queues.h"
#include "hw-model/prm/commands_queues.h"
#include "hw-model/prm/srq_context.h"

namespace softhca::firmware {
namespace {

using prm::CommandStatus;
using prm::RmpContext;
using prm::WqContext;
using WqType = prm::WqType;

using RmpBitmask = prm::Field<32, 32>;

}  // namespace

CommandResult create_rmp(FirmwareState& state, const Command& command) {
  const std::uint8_t* context = prm::CreateRmpInput::ctx::at(command.in.data());
  const std::uint8_t* wq = RmpContext::wq::at(context);
  if (WqContext::wq_type::get(wq) != static_cast<unsigned>(WqType::linked_list)) {
    return failure(CommandStatus::bad_parameter, Syndrome::bad_wq_type);
  }
  if (WqContext::wq_umem_valid::get(wq) != 0 || WqContext::dbr_umem_valid::get(wq) != 0) {
    return failure(CommandStatus::bad_parameter, Syndrome::umem_not_supported);
  }
  SrqParams params;
  SrqRecord record;
  record.kind = SrqKind::rmp;
  params.pd = static_cast<std::uint32_t>(WqContext::pd::get(wq));
  record.pd = state.pds.ref(params.pd);
  if (!record.pd) return failure(CommandStatus::bad_resource, Syndrome::no_such_pd);
  params.limit = static_cast<std::uint16_t>(WqContext::lwm::get(wq));
  record.log_page_size = static_cast<std::uint8_t>(WqContext::log_wq_pg_sz::get(wq));
  const SharedQueueShape shape{
      .log_size = WqContext::log_wq_sz::get(wq),
      .log_stride = WqContext::log_wq_stride::get(wq),
      .doorbell_record = WqContext::dbr_addr::get(wq),
      .pas = tail(command.in, prm::CreateRmpInput::ctx::offset + RmpContext::pas_offset),
      .log_page_size = WqContext::log_wq_pg_sz::get(wq),
      .page_offset = WqContext::page_offset::get(wq)};
  if (const Syndrome bad = read_shared_queue(state, shape, params); bad != Syndrome::none) {
    return failure(CommandStatus::bad_parameter, bad);
  }
  return create_shared_queue<prm::CreateRmpOutput::rmpn>(state, command, std::move(params),
                                                         std::move(record));
}

CommandResult modify_rmp(FirmwareState& state, const Command& command) {
  const std::uint8_t* in = command.in.data();
  const auto number = static_cast<std::uint32_t>(prm::ModifyRmpInput::rmpn::get(in));
  const std::uint64_t mask = RmpBitmask::get(prm::ModifyRmpInput::bitmask::at(in));
  if ((mask & ~std::uint64_t{prm::kRmpBitmaskLwm}) != 0) {
    return failure(CommandStatus::bad_parameter, Syndrome::bad_modify_field);
  }
  if (find_shared_queue(state, SrqKind::rmp, number) == nullptr) {
    return failure(CommandStatus::bad_resource, Syndrome::no_such_srq);
  }
  if ((mask & prm::kRmpBitmaskLwm) == 0) return {};
  const std::uint8_t* wq = RmpContext::wq::at(prm::ModifyRmpInput::ctx::at(in));
  return arm_shared_queue(state, SrqKind::rmp, number, WqContext::lwm::get(wq));
}

CommandResult destroy_rmp(FirmwareState& state, const Command& command) {
  return destroy_shared_queue(state, SrqKind::rmp,
                              prm::DestroyRmpInput::rmpn::get(command.in.data()));
}

CommandResult query_rmp(FirmwareState& state, const Command& command) {
  const auto number = static_cast<std::uint32_t>(prm::QueryRmpInput::rmpn::get(command.in.data()));
  SharedReceiveQueue* srq = find_shared_queue(state, SrqKind::rmp, number);
  if (srq == nullptr) return failure(CommandStatus::bad_resource, Syndrome::no_such_srq);
  const SrqParams& params = srq->params();
  std::uint8_t* context = prm::QueryRmpOutput::rmp_context::at(command.out.data());
  RmpContext::state::set(context, static_cast<unsigned>(srq->in_error() ? prm::RmpState::error
                                                                        : prm::RmpState::ready));
  std::uint8_t* wq = RmpContext::wq::at(context);
  WqContext::wq_type::set(wq, static_cast<unsigned>(WqType::linked_list));
  WqContext::lwm::set(wq, srq->limit());
  WqContext::pd::set(wq, params.pd);
  WqContext::dbr_addr::set(wq, params.ring.doorbell_record);
  WqContext::log_wq_stride::set(wq, static_cast<unsigned>(std::countr_zero(params.ring.stride)));
  WqContext::log_wq_pg_sz::set(wq, state.srq_records[number].log_page_size);
  WqContext::log_wq_sz::set(wq, params.ring.log_size);
  return {};
}

}  // namespace softhca::firmware
