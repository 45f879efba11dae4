// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Shared receive queues: SRQ (ISSI 0) and XRC SRQ, which share their layout (PRM "SRQ Commands").
#include <bit>

#include "hw-model/firmware/handlers.h"
#include "hw-model/firmware/queue_memory.h"
#include "hw-model/firmware/shared_queues.h"
#include "hw-model/prm/commands_queues.h"
#include "hw-model/prm/srq_context.h"

namespace softhca::firmware {
namespace {

using prm::CommandStatus;
using prm::SrqContext;
using prm::XrcSrqContext;

constexpr std::uint16_t kArmSrq = 1;  // op_mod of ARM_RQ and ARM_XRC_SRQ

/// The fields that SRQ and XRC SRQ contexts have at the same place.
CommandResult read_common(FirmwareState& state, const Command& command, const std::uint8_t* context,
                          std::size_t pas_offset, SrqParams& params, SrqRecord& record) {
  params.pd = static_cast<std::uint32_t>(SrqContext::pd::get(context));
  record.pd = state.pds.ref(params.pd);
  if (!record.pd) return failure(CommandStatus::bad_resource, Syndrome::no_such_pd);
  params.reserved_lkey = command.uid == 0 && SrqContext::rlky::get(context) != 0;
  params.limit = static_cast<std::uint16_t>(SrqContext::lwm::get(context));
  record.log_page_size = static_cast<std::uint8_t>(SrqContext::log_page_size::get(context));
  const SharedQueueShape shape{.log_size = SrqContext::log_srq_size::get(context),
                               .log_stride = 4 + SrqContext::log_rq_stride::get(context),
                               .doorbell_record = SrqContext::dbr_addr::get(context) & ~3ULL,
                               .pas = tail(command.in, pas_offset),
                               .log_page_size = SrqContext::log_page_size::get(context),
                               .page_offset = SrqContext::page_offset::get(context)};
  const Syndrome bad = read_shared_queue(state, shape, params);
  return bad == Syndrome::none ? CommandResult{} : failure(CommandStatus::bad_parameter, bad);
}
template <typename A, typename B>
constexpr bool kSamePlace = A::bit_offset == B::bit_offset&& A::width == B::width;
static_assert(kSamePlace<SrqContext::log_srq_size, XrcSrqContext::log_xrc_srq_size> &&
              kSamePlace<SrqContext::dbr_addr, XrcSrqContext::dbr_addr> &&
              kSamePlace<SrqContext::log_page_size, XrcSrqContext::log_page_size> &&
              kSamePlace<SrqContext::pd, XrcSrqContext::pd> &&
              kSamePlace<SrqContext::lwm, XrcSrqContext::lwm>);

void write_common(std::uint8_t* context, SharedReceiveQueue& srq, const SrqRecord& record) {
  const SrqParams& params = srq.params();
  SrqContext::state::set(
      context, static_cast<unsigned>(srq.in_error() ? prm::SrqState::error : prm::SrqState::good));
  SrqContext::log_srq_size::set(context, params.ring.log_size);
  SrqContext::log_rq_stride::set(context,
                                 static_cast<unsigned>(std::countr_zero(params.ring.stride) - 4));
  SrqContext::log_page_size::set(context, record.log_page_size);
  SrqContext::pd::set(context, params.pd);
  SrqContext::lwm::set(context, srq.limit());
  SrqContext::wqe_cnt::set(context, srq.available());
  SrqContext::dbr_addr::set(context, params.ring.doorbell_record);
  if (record.xrcd) SrqContext::xrcd::set(context, record.xrcd->number);
  if (record.cq) SrqContext::cqn::set(context, record.cq->number());
}

CommandResult arm(FirmwareState& state, const Command& command, SrqKind kind, std::uint64_t number,
                  std::uint64_t limit) {
  if (command.op_mod != kArmSrq) return failure(CommandStatus::bad_parameter, Syndrome::bad_op_mod);
  return arm_shared_queue(state, kind, static_cast<std::uint32_t>(number), limit);
}

}  // namespace

CommandResult create_srq(FirmwareState& state, const Command& command) {
  const std::uint8_t* context = prm::CreateSrqInput::srq_context_entry::at(command.in.data());
  SrqParams params;
  SrqRecord record;
  record.kind = SrqKind::srq;
  const CommandResult bad =
      read_common(state, command, context, prm::CreateSrqInput::pas_offset, params, record);
  if (!bad.ok()) return bad;
  return create_shared_queue<prm::CreateSrqOutput::srqn>(state, command, std::move(params),
                                                         std::move(record));
}

CommandResult create_xrc_srq(FirmwareState& state, const Command& command) {
  if (prm::CreateXrcSrqInput::xrc_srq_umem_valid::get(command.in.data()) != 0) {
    return failure(CommandStatus::bad_parameter, Syndrome::umem_not_supported);
  }
  const std::uint8_t* context =
      prm::CreateXrcSrqInput::xrc_srq_context_entry::at(command.in.data());
  SrqParams params;
  SrqRecord record;
  record.kind = SrqKind::xrc_srq;
  record.xrcd = state.xrcds.ref(static_cast<std::uint32_t>(XrcSrqContext::xrcd::get(context)));
  if (!record.xrcd) return failure(CommandStatus::bad_resource, Syndrome::no_such_xrcd);
  record.cq =
      state.transport.cqs().ref(static_cast<std::uint32_t>(XrcSrqContext::cqn::get(context)));
  if (!record.cq) return failure(CommandStatus::bad_resource, Syndrome::no_such_cq);
  params.xrcd = record.xrcd->number;
  params.cq = record.cq;
  params.user_index = static_cast<std::uint32_t>(XrcSrqContext::user_index::get(context));
  const CommandResult bad =
      read_common(state, command, context, prm::CreateXrcSrqInput::pas_offset, params, record);
  if (!bad.ok()) return bad;
  return create_shared_queue<prm::CreateXrcSrqOutput::xrc_srqn>(state, command, std::move(params),
                                                                std::move(record));
}

CommandResult destroy_srq(FirmwareState& state, const Command& command) {
  return destroy_shared_queue(state, SrqKind::srq,
                              prm::DestroySrqInput::srqn::get(command.in.data()));
}

CommandResult destroy_xrc_srq(FirmwareState& state, const Command& command) {
  return destroy_shared_queue(state, SrqKind::xrc_srq,
                              prm::DestroyXrcSrqInput::xrc_srqn::get(command.in.data()));
}

CommandResult query_srq(FirmwareState& state, const Command& command) {
  const auto number = static_cast<std::uint32_t>(prm::QuerySrqInput::srqn::get(command.in.data()));
  SharedReceiveQueue* srq = find_shared_queue(state, SrqKind::srq, number);
  if (srq == nullptr) return failure(CommandStatus::bad_resource, Syndrome::no_such_srq);
  write_common(prm::QuerySrqOutput::srq_context_entry::at(command.out.data()), *srq,
               state.srq_records[number]);
  return {};
}

CommandResult query_xrc_srq(FirmwareState& state, const Command& command) {
  const auto number =
      static_cast<std::uint32_t>(prm::QueryXrcSrqInput::xrc_srqn::get(command.in.data()));
  SharedReceiveQueue* srq = find_shared_queue(state, SrqKind::xrc_srq, number);
  if (srq == nullptr) return failure(CommandStatus::bad_resource, Syndrome::no_such_srq);
  std::uint8_t* context = prm::QueryXrcSrqOutput::xrc_srq_context_entry::at(command.out.data());
  write_common(context, *srq, state.srq_records[number]);
  XrcSrqContext::user_index::set(context, srq->params().user_index);
  return {};
}

CommandResult arm_rq(FirmwareState& state, const Command& command) {
  const std::uint8_t* in = command.in.data();
  return arm(state, command, SrqKind::srq, prm::ArmRqInput::srq_number::get(in),
             prm::ArmRqInput::lwm::get(in));
}

CommandResult arm_xrc_srq(FirmwareState& state, const Command& command) {
  const std::uint8_t* in = command.in.data();
  return arm(state, command, SrqKind::xrc_srq, prm::ArmXrcSrqInput::xrc_srqn::get(in),
             prm::ArmXrcSrqInput::lwm::get(in));
}

}  // namespace softhca::firmware
