// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Queue pairs: CREATE_QP, DESTROY_QP (PRM "QP Commands").
#include "hw-model/firmware/handlers.h"
#include "hw-model/firmware/queue_memory.h"
#include "hw-model/prm/commands_qp.h"
#include "hw-model/prm/qp_context.h"

namespace softhca::firmware {
namespace {

using prm::CommandStatus;
using prm::CreateQpInput;
using prm::QpContext;
using prm::QpReceiveQueueType;
using prm::QpServiceType;

constexpr std::uint64_t kSendBlock = 64;
constexpr std::uint64_t kReceiveWord = 0;  ///< Words of the doorbell record, in bytes.
constexpr std::uint64_t kSendWord = 4;

CommandResult bad_parameter(Syndrome syndrome) {
  return failure(CommandStatus::bad_parameter, syndrome);
}
CommandResult bad_resource(Syndrome syndrome) {
  return failure(CommandStatus::bad_resource, syndrome);
}

bool known_service(std::uint64_t st) {
  switch (static_cast<QpServiceType>(st)) {
    case QpServiceType::rc:
    case QpServiceType::uc:
    case QpServiceType::ud:
    case QpServiceType::xrc:
    case QpServiceType::qp0:
    case QpServiceType::qp1:
    case QpServiceType::reg_umr:
      return true;
    default:
      return false;
  }
}

/// cs_req and cs_res: the codes for 32 and 64 bytes of scatter to CQE, as bytes; anything else is
/// off.
std::uint8_t scatter_to_cqe(std::uint64_t code) {
  switch (code) {
    case 0x1:
    case 0x11:
      return 32;
    case 0x2:
    case 0x22:
      return 64;
    default:
      return 0;
  }
}

CommandResult read_receive_side(FirmwareState& state, const std::uint8_t* context,
                                QpParams& params) {
  const std::uint64_t doorbell = QpContext::dbr_addr::get(context);
  params.has_rq = false;
  // Each message names its SRQ; the number in the context is a dummy.
  if (params.type == QpServiceType::xrc) return {};
  // CREATE_QP always carries an SRQ number, so only rq_type decides.
  switch (static_cast<QpReceiveQueueType>(QpContext::rq_type::get(context))) {
    case QpReceiveQueueType::none:
      return {};
    case QpReceiveQueueType::srq_rmp_xrc_srq:
      params.srq = state.transport.srqs().ref(
          static_cast<std::uint32_t>(QpContext::srqn_rmpn_xrqn::get(context)));
      return params.srq ? CommandResult{} : bad_resource(Syndrome::no_such_srq);
    case QpReceiveQueueType::regular:
      break;
    default:
      return bad_parameter(Syndrome::bad_receive_queue_type);
  }
  params.has_rq = true;
  params.rq.start = 0;
  params.rq.log_size = static_cast<std::uint8_t>(QpContext::log_rq_size::get(context));
  params.rq.stride = 16U << QpContext::log_rq_stride::get(context);
  params.rq.doorbell_record = doorbell + kReceiveWord;
  params.rq.signature = QpContext::wq_signature::get(context) != 0;
  if (params.rq.log_size > DeviceLimits::kLogMaxQpSize)
    return bad_parameter(Syndrome::bad_queue_size);
  if (params.rq.stride > DeviceLimits::kMaxReceiveWqe)
    return bad_parameter(Syndrome::bad_wqe_stride);
  return {};
}

std::uint64_t receive_bytes(const QpParams& params) {
  return params.has_rq ? std::uint64_t{params.rq.stride} << params.rq.log_size : 0;
}

CommandResult read_send_side(FirmwareState& state, const std::uint8_t* context, QpParams& params,
                             QpRecord& record) {
  params.has_sq = QpContext::no_sq::get(context) == 0;
  if (!params.has_sq) return {};
  params.sq.start = receive_bytes(params);
  params.sq.log_size = static_cast<std::uint8_t>(QpContext::log_sq_size::get(context));
  params.sq.doorbell_record = QpContext::dbr_addr::get(context) + kSendWord;
  if (params.sq.log_size > DeviceLimits::kLogMaxQpSize)
    return bad_parameter(Syndrome::bad_queue_size);
  record.uar = state.uars.ref(static_cast<std::uint32_t>(QpContext::uar_page::get(context)));
  return record.uar ? CommandResult{} : bad_resource(Syndrome::no_such_uar);
}

CommandResult read_queues(FirmwareState& state, const Command& command, QpParams& params,
                          QpRecord& record) {
  const std::uint8_t* context = CreateQpInput::qpc::at(command.in.data());
  if (QpContext::dbr_addr::get(context) % 8 != 0)
    return bad_parameter(Syndrome::bad_doorbell_record);
  if (const CommandResult bad = read_receive_side(state, context, params); !bad.ok()) return bad;
  if (const CommandResult bad = read_send_side(state, context, params, record); !bad.ok())
    return bad;
  const QueueMemory memory{
      .pas = tail(command.in, CreateQpInput::pas_offset),
      .log_page_size = QpContext::log_page_size::get(context),
      .page_offset = QpContext::page_offset::get(context),
      .bytes = receive_bytes(params) + (params.has_sq ? kSendBlock << params.sq.log_size : 0)};
  if (memory.bytes == 0) return {};
  const Syndrome bad = make_queue_buffer(state.dma, memory, params.buffer);
  return bad == Syndrome::none ? CommandResult{} : bad_parameter(bad);
}

CommandResult read_objects(FirmwareState& state, const std::uint8_t* context, QpParams& params,
                           QpRecord& record) {
  params.pd = static_cast<std::uint32_t>(QpContext::pd::get(context));
  record.pd = state.pds.ref(params.pd);
  // A QP for memory registration alone has no protection domain: it carries no data.
  if (!record.pd && params.type != QpServiceType::reg_umr) {
    return bad_resource(Syndrome::no_such_pd);
  }
  if (params.type == QpServiceType::xrc) {
    params.xrcd = static_cast<std::uint32_t>(QpContext::xrcd::get(context));
    record.xrc_domain = state.xrcds.ref(params.xrcd);
    if (!record.xrc_domain) return bad_resource(Syndrome::no_such_xrcd);
  }
  params.send_cq =
      state.transport.cqs().ref(static_cast<std::uint32_t>(QpContext::cqn_snd::get(context)));
  params.recv_cq =
      state.transport.cqs().ref(static_cast<std::uint32_t>(QpContext::cqn_rcv::get(context)));
  if (!params.send_cq || !params.recv_cq) return bad_resource(Syndrome::no_such_cq);
  return {};
}

/// One QP0 and one QP1 per port.
bool special_taken(const FirmwareState& state, QpServiceType type) {
  if (type != QpServiceType::qp0 && type != QpServiceType::qp1) return false;
  for (const auto& [qpn, record] : state.qp_records) {
    const QpParams* params = state.transport.qp_params(qpn);
    if (params != nullptr && params->type == type) return true;
  }
  return false;
}

}  // namespace

CommandResult create_qp(FirmwareState& state, const Command& command) {
  if (state.pages.exhausted())
    return failure(CommandStatus::no_resources, Syndrome::pages_withheld);
  if (CreateQpInput::wq_umem_valid::get(command.in.data()) != 0) {
    return bad_parameter(Syndrome::umem_not_supported);
  }
  const std::uint8_t* context = CreateQpInput::qpc::at(command.in.data());
  if (!known_service(QpContext::st::get(context))) return bad_parameter(Syndrome::bad_service_type);
  QpParams params;
  QpRecord record;
  params.type = static_cast<QpServiceType>(QpContext::st::get(context));
  if (params.type == QpServiceType::reg_umr && command.uid != 0)
    return bad_parameter(Syndrome::bad_service_type);
  if (special_taken(state, params.type))
    return failure(CommandStatus::bad_resource_state, Syndrome::special_qp_taken);
  if (const CommandResult bad = read_objects(state, context, params, record); !bad.ok()) return bad;
  if (const CommandResult bad = read_queues(state, command, params, record); !bad.ok()) return bad;
  params.user_index = static_cast<std::uint32_t>(QpContext::user_index::get(context));
  // What reaches memory by its address is for the kernel alone.
  const bool kernel = command.uid == 0;
  params.reserved_lkey = kernel && QpContext::rlky::get(context) != 0;
  params.fast_registration = kernel && QpContext::fre::get(context) != 0;
  params.block_lb_mc = QpContext::block_lb_mc::get(context) != 0;
  params.cs_req = scatter_to_cqe(QpContext::cs_req::get(context));
  params.cs_res = scatter_to_cqe(QpContext::cs_res::get(context));
  params.log_msg_max = DeviceLimits::kLogMaxMessage;
  params.log_ack_req_freq = static_cast<std::uint8_t>(QpContext::log_ack_req_freq::get(context));
  params.deth_sqpn = static_cast<std::uint32_t>(QpContext::deth_sqpn::get(context));
  record.log_page_size = static_cast<std::uint8_t>(QpContext::log_page_size::get(context));
  record.xrcd = static_cast<std::uint32_t>(QpContext::xrcd::get(context));
  const auto qpn = state.transport.create_qp(std::move(params));
  if (!qpn) return failure(CommandStatus::no_resources, Syndrome::out_of_qps);
  state.qp_records[*qpn] = std::move(record);
  prm::CreateQpOutput::qpn::set(command.out.data(), *qpn);
  return {};
}

CommandResult destroy_qp(FirmwareState& state, const Command& command) {
  const auto qpn = static_cast<std::uint32_t>(prm::DestroyQpInput::qpn::get(command.in.data()));
  if (!state.qp_records.contains(qpn)) return bad_resource(Syndrome::no_such_qp);
  switch (state.transport.destroy_qp(qpn)) {
    case DestroyResult::not_found:
      return bad_resource(Syndrome::no_such_qp);
    case DestroyResult::in_use:
      return failure(CommandStatus::bad_resource_state, Syndrome::qp_in_use);
    case DestroyResult::ok:
      break;
  }
  state.qp_records.erase(qpn);
  return {};
}

}  // namespace softhca::firmware
