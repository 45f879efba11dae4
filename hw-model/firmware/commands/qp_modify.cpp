// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Transitions of a queue pair (PRM "QP Commands"; IBA 10.3.1).
#include <algorithm>

#include "hw-model/firmware/handlers.h"
#include "hw-model/prm/address_path.h"
#include "hw-model/prm/commands_qp.h"
#include "hw-model/prm/qp_context.h"

namespace softhca::firmware {
namespace {

using prm::AddressPath;
using prm::CommandOpcode;
using prm::CommandStatus;
using prm::QpContext;
using prm::QpServiceType;

constexpr std::size_t kPkeyTable = 128;
constexpr std::size_t kGidTable = 8;

QpTransition transition_of(std::uint16_t opcode) {
  switch (static_cast<CommandOpcode>(opcode)) {
    case CommandOpcode::rst2init_qp:
      return QpTransition::reset_to_init;
    case CommandOpcode::init2init_qp:
      return QpTransition::init_to_init;
    case CommandOpcode::init2rtr_qp:
      return QpTransition::init_to_rtr;
    case CommandOpcode::rtr2rts_qp:
      return QpTransition::rtr_to_rts;
    case CommandOpcode::rts2rts_qp:
      return QpTransition::rts_to_rts;
    case CommandOpcode::sqerr2rts_qp:
      return QpTransition::sq_error_to_rts;
    case CommandOpcode::sqd_rts_qp:
      return QpTransition::sq_drained_to_rts;
    case CommandOpcode::to_err_qp:
      return QpTransition::to_error;
    default:
      return QpTransition::to_reset;
  }
}

QpPath read_path(const std::uint8_t* ads) {
  QpPath path;
  path.dlid = static_cast<std::uint16_t>(AddressPath::rlid::get(ads));
  path.path_bits = static_cast<std::uint8_t>(AddressPath::mlid::get(ads));
  path.sl = static_cast<std::uint8_t>(AddressPath::sl::get(ads));
  path.has_grh = AddressPath::grh::get(ads) != 0;
  path.sgid_index = static_cast<std::uint8_t>(AddressPath::src_addr_index::get(ads));
  const std::uint8_t* gid = AddressPath::rgid_rip::at(ads);
  std::copy_n(gid, path.dgid.size(), path.dgid.begin());
  path.traffic_class = static_cast<std::uint8_t>(AddressPath::tclass::get(ads));
  path.flow_label = static_cast<std::uint32_t>(AddressPath::flow_label::get(ads));
  path.hop_limit = static_cast<std::uint8_t>(AddressPath::hop_limit::get(ads));
  path.static_rate = static_cast<std::uint8_t>(AddressPath::stat_rate::get(ads));
  return path;
}

template <typename F>
auto u8(const std::uint8_t* context) {
  return static_cast<std::uint8_t>(F::get(context));
}
template <typename F>
auto u32(const std::uint8_t* context) {
  return static_cast<std::uint32_t>(F::get(context));
}

QpAttributes read_attributes(const std::uint8_t* context) {
  const std::uint8_t* ads = QpContext::primary_address_path::at(context);
  QpAttributes attributes;
  attributes.pkey_index = static_cast<std::uint16_t>(AddressPath::pkey_index::get(ads));
  // Drivers of one-port devices may leave the port 0 where the transition does not set it.
  attributes.port = std::max<std::uint8_t>(1, u8<AddressPath::vhca_port_num>(ads));
  attributes.remote_read = QpContext::rre::get(context) != 0;
  attributes.remote_write = QpContext::rwe::get(context) != 0;
  attributes.remote_atomic = QpContext::rae::get(context) != 0;
  attributes.qkey = u32<QpContext::q_key>(context);
  attributes.path = read_path(ads);
  attributes.mtu = u8<QpContext::mtu>(context);
  attributes.remote_qpn = u32<QpContext::remote_qpn>(context);
  attributes.next_rcv_psn = u32<QpContext::next_rcv_psn>(context);
  attributes.next_send_psn = u32<QpContext::next_send_psn>(context);
  attributes.log_rra_max = u8<QpContext::log_rra_max>(context);
  attributes.log_sra_max = u8<QpContext::log_sra_max>(context);
  attributes.min_rnr_nak = u8<QpContext::min_rnr_nak>(context);
  attributes.retry_count = u8<QpContext::retry_count>(context);
  attributes.rnr_retry = u8<QpContext::rnr_retry>(context);
  attributes.ack_timeout = u8<AddressPath::ack_timeout>(ads);
  attributes.pm_state = u8<QpContext::pm_state>(context);
  attributes.counter_set_id = u8<QpContext::counter_set_id>(context);
  return attributes;
}

bool connected(QpServiceType type) {
  return type == QpServiceType::rc || type == QpServiceType::uc || type == QpServiceType::xrc;
}

/// What the transition is about to use must make sense on this device.
Syndrome check_attributes(const QpAttributes& attributes, QpServiceType type,
                          QpTransition transition, std::uint32_t opt_mask) {
  if ((opt_mask & prm::kOptParamAlternatePath) != 0) return Syndrome::bad_path_migration;
  const bool to_init =
      transition == QpTransition::reset_to_init || transition == QpTransition::init_to_init;
  const bool to_rtr = transition == QpTransition::init_to_rtr;
  if (to_init || (opt_mask & prm::kOptParamPkeyIndex) != 0) {
    if (attributes.pkey_index >= kPkeyTable) return Syndrome::bad_pkey_index;
  }
  if (to_init && attributes.port != 1) return Syndrome::bad_port;
  if (to_rtr && type != QpServiceType::reg_umr && (attributes.mtu < 1 || attributes.mtu > 5))
    return Syndrome::bad_mtu;
  const bool sets_path = (to_rtr && connected(type)) || (opt_mask & prm::kOptParamPrimaryPath) != 0;
  if (sets_path && attributes.path.has_grh && attributes.path.sgid_index >= kGidTable)
    return Syndrome::bad_gid_index;
  if (type == QpServiceType::rc || type == QpServiceType::xrc) {
    const bool sets_rra = to_rtr || (opt_mask & prm::kOptParamRraMax) != 0;
    const bool sets_sra =
        transition == QpTransition::rtr_to_rts || (opt_mask & prm::kOptParamSraMax) != 0;
    if (sets_rra && attributes.log_rra_max > DeviceLimits::kLogMaxRdAtomic)
      return Syndrome::bad_rd_atomic;
    if (sets_sra && attributes.log_sra_max > DeviceLimits::kLogMaxRdAtomic)
      return Syndrome::bad_rd_atomic;
  }
  return Syndrome::none;
}

}  // namespace

CommandResult modify_qp(FirmwareState& state, const Command& command) {
  const std::uint8_t* in = command.in.data();
  const auto qpn = static_cast<std::uint32_t>(prm::ModifyQpInput::qpn::get(in));
  const QpParams* params = state.transport.qp_params(qpn);
  if (params == nullptr || !state.qp_records.contains(qpn)) {
    return failure(CommandStatus::bad_resource, Syndrome::no_such_qp);
  }
  const QpTransition transition = transition_of(command.opcode);

  QpAttributes attributes;
  std::uint32_t opt_mask = 0;
  // 2ERR and 2RST have no context: their input ends after the number.
  if (transition != QpTransition::to_error && transition != QpTransition::to_reset) {
    if (command.in.size() < prm::ModifyQpInput::qpc::offset + QpContext::size) {
      return failure(CommandStatus::bad_input_length, Syndrome::input_too_short);
    }
    attributes = read_attributes(prm::ModifyQpInput::qpc::at(in));
    opt_mask = static_cast<std::uint32_t>(prm::ModifyQpInput::opt_param_mask::get(in));
    const Syndrome bad = check_attributes(attributes, params->type, transition, opt_mask);
    if (bad != Syndrome::none) return failure(CommandStatus::bad_parameter, bad);
    const bool counted =
        transition == QpTransition::reset_to_init || (opt_mask & prm::kOptParamCounterSetId) != 0;
    if (counted && attributes.counter_set_id != 0 &&
        state.transport.q_counters(attributes.counter_set_id) == nullptr) {
      return failure(CommandStatus::bad_resource, Syndrome::no_such_counter);
    }
  }
  switch (state.transport.modify_qp(qpn, transition, attributes, opt_mask)) {
    case ModifyResult::ok:
      return {};
    case ModifyResult::bad_state:
      return failure(CommandStatus::bad_qp_state, Syndrome::bad_qp_transition);
    case ModifyResult::bad_parameter:
      return failure(CommandStatus::bad_parameter, Syndrome::bad_optional_parameter);
  }
  return {};
}

}  // namespace softhca::firmware
