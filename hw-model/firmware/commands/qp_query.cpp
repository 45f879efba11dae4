// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// QUERY_QP (PRM "QP Commands").
#include <algorithm>
#include <bit>

#include "hw-model/firmware/handlers.h"
#include "hw-model/prm/address_path.h"
#include "hw-model/prm/commands_qp.h"
#include "hw-model/prm/qp_context.h"

namespace softhca::firmware {
namespace {

using prm::AddressPath;
using prm::CommandStatus;
using prm::QpContext;

void write_path(std::uint8_t* ads, const QpAttributes& attributes) {
  const QpPath& path = attributes.path;
  AddressPath::pkey_index::set(ads, attributes.pkey_index);
  AddressPath::vhca_port_num::set(ads, attributes.port);
  AddressPath::ack_timeout::set(ads, attributes.ack_timeout);
  AddressPath::rlid::set(ads, path.dlid);
  AddressPath::mlid::set(ads, path.path_bits);
  AddressPath::sl::set(ads, path.sl);
  AddressPath::grh::set(ads, path.has_grh ? 1 : 0);
  AddressPath::src_addr_index::set(ads, path.sgid_index);
  std::copy(path.dgid.begin(), path.dgid.end(), AddressPath::rgid_rip::at(ads));
  AddressPath::tclass::set(ads, path.traffic_class);
  AddressPath::flow_label::set(ads, path.flow_label);
  AddressPath::hop_limit::set(ads, path.hop_limit);
  AddressPath::stat_rate::set(ads, path.static_rate);
}

void write_attributes(std::uint8_t* context, const QpAttributes& attributes) {
  QpContext::pm_state::set(context, attributes.pm_state);
  QpContext::mtu::set(context, attributes.mtu);
  QpContext::remote_qpn::set(context, attributes.remote_qpn);
  QpContext::log_sra_max::set(context, attributes.log_sra_max);
  QpContext::log_rra_max::set(context, attributes.log_rra_max);
  QpContext::retry_count::set(context, attributes.retry_count);
  QpContext::rnr_retry::set(context, attributes.rnr_retry);
  QpContext::next_send_psn::set(context, attributes.next_send_psn);
  QpContext::next_rcv_psn::set(context, attributes.next_rcv_psn);
  QpContext::rre::set(context, attributes.remote_read ? 1 : 0);
  QpContext::rwe::set(context, attributes.remote_write ? 1 : 0);
  QpContext::rae::set(context, attributes.remote_atomic ? 1 : 0);
  QpContext::min_rnr_nak::set(context, attributes.min_rnr_nak);
  QpContext::q_key::set(context, attributes.qkey);
  QpContext::counter_set_id::set(context, attributes.counter_set_id);
  write_path(QpContext::primary_address_path::at(context), attributes);
}

void write_queues(std::uint8_t* context, const QpParams& params, const QpSnapshot& snapshot,
                  const QpRecord& record) {
  QpContext::pd::set(context, params.pd);
  QpContext::user_index::set(context, params.user_index);
  QpContext::log_msg_max::set(context, params.log_msg_max);
  QpContext::log_page_size::set(context, record.log_page_size);
  QpContext::rlky::set(context, params.reserved_lkey ? 1 : 0);
  QpContext::cqn_snd::set(context, snapshot.send_cqn);
  QpContext::cqn_rcv::set(context, snapshot.recv_cqn);
  QpContext::xrcd::set(context, record.xrcd);
  prm::QpReceiveQueueType type = prm::QpReceiveQueueType::none;
  std::uint64_t doorbell = 0;
  if (params.has_sq) {
    QpContext::log_sq_size::set(context, params.sq.log_size);
    QpContext::uar_page::set(context, record.uar->number);
    doorbell = params.sq.doorbell_record - 4;
  }
  if (params.has_rq) {
    type = prm::QpReceiveQueueType::regular;
    QpContext::log_rq_size::set(context, params.rq.log_size);
    QpContext::log_rq_stride::set(context,
                                  static_cast<unsigned>(std::countr_zero(params.rq.stride) - 4));
    doorbell = params.rq.doorbell_record;
  } else if (params.srq) {
    type = prm::QpReceiveQueueType::srq_rmp_xrc_srq;
    QpContext::srqn_rmpn_xrqn::set(context, snapshot.srqn);
  }
  QpContext::no_sq::set(context, params.has_sq ? 0 : 1);
  QpContext::rq_type::set(context, static_cast<unsigned>(type));
  QpContext::dbr_addr::set(context, doorbell);
  QpContext::sw_sq_wqebb_counter::set(context, snapshot.sq_posted);
  QpContext::hw_sq_wqebb_counter::set(context, snapshot.sq_consumed);
  QpContext::sw_rq_counter::set(context, snapshot.rq_posted);
  QpContext::hw_rq_counter::set(context, snapshot.rq_consumed);
  QpContext::last_acked_psn::set(context, snapshot.last_acked_psn);
}

}  // namespace

CommandResult query_qp(FirmwareState& state, const Command& command) {
  const auto qpn = static_cast<std::uint32_t>(prm::QueryQpInput::qpn::get(command.in.data()));
  const auto snapshot = state.transport.query_qp(qpn);
  const QpParams* params = state.transport.qp_params(qpn);
  if (!snapshot || params == nullptr || !state.qp_records.contains(qpn))
    return failure(CommandStatus::bad_resource, Syndrome::no_such_qp);
  std::uint8_t* context = prm::QueryQpOutput::qpc::at(command.out.data());
  QpContext::state::set(context, static_cast<unsigned>(snapshot->state));
  QpContext::st::set(context, static_cast<unsigned>(snapshot->type));
  write_attributes(context, snapshot->attributes);
  write_queues(context, *params, *snapshot, state.qp_records[qpn]);
  return {};
}

}  // namespace softhca::firmware
