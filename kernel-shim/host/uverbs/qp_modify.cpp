// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// State transitions and queries of queue pairs.
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/mlx5-abi.h>

#include <bit>
#include <cstring>

#include "hw-model/prm/address_path.h"
#include "hw-model/prm/commands_qp.h"
#include "hw-model/prm/qp_context.h"
#include "kernel-shim/host/uverbs/method.h"
#include "kernel-shim/host/uverbs/qp_transition.h"

namespace softhca::shim {
namespace {

using namespace qp_attr;  // NOLINT(google-build-using-namespace): masks by their IBA names.
using Qpc = prm::QpContext;
using Path = prm::AddressPath;

constexpr std::uint32_t kPrivilegedQkey = 0x80000000;  // IB_QP_SET_QKEY.
constexpr std::uint8_t kMtuMin = 1;
constexpr std::uint8_t kMtuMax = 5;
constexpr std::uint8_t kLogDatagramMessage = 12;
/// The device asks for an acknowledge every 2^8 packets (MLX5_IB_ACK_REQ_FREQ).
constexpr std::uint8_t kLogAckRequest = 8;
// enum ib_mig_state and the device's pm_state.
constexpr std::uint8_t kMigMigrated = 0;
constexpr std::uint8_t kMigRearm = 1;
constexpr std::uint8_t kMigArmed = 2;
constexpr std::uint8_t kPmArmed = 0;
constexpr std::uint8_t kPmRearm = 1;
constexpr std::uint8_t kPmMigrated = 3;
constexpr std::uint8_t kRateFirst = 2;  // IB_RATE_2_5_GBPS.
constexpr std::uint8_t kRateLast = 18;  // IB_RATE_600_GBPS.
constexpr std::uint8_t kRateOffset = 5;

/// log2, rounded up; 0 for 0 and 1.
std::uint8_t log_ceil(std::uint32_t value) {
  return value <= 1 ? 0 : static_cast<std::uint8_t>(std::bit_width(value - 1));
}

/// ib_rate_to_mlx5: the next lower rate that the device has; EINVAL for what is no rate.
int static_rate(const Hca& hca, std::uint8_t rate, std::uint8_t& code) {
  code = 0;
  if (rate == 0) return 0;
  if (rate < kRateFirst || rate > kRateLast) return EINVAL;
  const std::uint32_t supported = hca.cap<prm::HcaCap::stat_rate_support>();
  for (; rate >= kRateFirst; --rate) {
    const unsigned bit = rate + kRateOffset;
    if (bit < 16 && (supported >> bit & 1) != 0) {
      code = static_cast<std::uint8_t>(bit & 0xf);
      return 0;
    }
  }
  return 0;
}

/// mlx5_set_path.
int set_path(Context& context, const ib_uverbs_qp_dest& dest, std::uint8_t port,
             std::uint8_t* path) {
  if (dest.is_global != 0 && dest.sgid_index >= context.device().gids().size()) return EINVAL;
  std::uint8_t rate = 0;
  if (const int error = static_rate(context.hca(), dest.static_rate, rate)) return error;
  Path::rlid::set(path, dest.dlid);
  Path::mlid::set(path, dest.src_path_bits);
  Path::grh::set(path, dest.is_global != 0 ? 1 : 0);
  Path::sl::set(path, dest.sl);
  if (dest.is_global != 0) {
    Path::src_addr_index::set(path, dest.sgid_index);
    Path::hop_limit::set(path, dest.hop_limit);
    Path::tclass::set(path, dest.traffic_class);
    Path::flow_label::set(path, dest.flow_label);
    std::memcpy(Path::rgid_rip::at(path), dest.dgid, sizeof(dest.dgid));
  }
  Path::stat_rate::set(path, rate);
  Path::vhca_port_num::set(path, port);
  return 0;
}

void set_rights(const RealQp& real, const ib_uverbs_modify_qp& attr, std::uint32_t mask,
                std::uint8_t* qpc) {
  const std::uint8_t depth =
      (mask & kMaxDestRdAtomic) != 0 ? attr.max_dest_rd_atomic : real.max_dest_rd_atomic;
  std::uint32_t access = (mask & kAccessFlags) != 0 ? attr.qp_access_flags : real.access_flags;
  // Without responder resources there is nothing to read from.
  if (depth == 0) access &= IB_UVERBS_ACCESS_REMOTE_WRITE;
  Qpc::rre::set(qpc, (access & IB_UVERBS_ACCESS_REMOTE_READ) != 0 ? 1 : 0);
  Qpc::rwe::set(qpc, (access & IB_UVERBS_ACCESS_REMOTE_WRITE) != 0 ? 1 : 0);
  if ((access & IB_UVERBS_ACCESS_REMOTE_ATOMIC) != 0) {
    Qpc::rae::set(qpc, 1);
    Qpc::atomic_mode::set(qpc, static_cast<std::uint64_t>(prm::QpAtomicMode::ib_compliant));
  }
}

int set_mtu(Context& context, const RealQp& real, const ib_uverbs_modify_qp& attr,
            std::uint32_t mask, std::uint8_t* qpc) {
  if (real.type == IB_UVERBS_QPT_UD) {
    Qpc::mtu::set(qpc, kMtuMax);
    Qpc::log_msg_max::set(qpc, kLogDatagramMessage);
  } else if ((mask & kPathMtu) != 0) {
    if (attr.path_mtu < kMtuMin || attr.path_mtu > kMtuMax) return EINVAL;
    Qpc::mtu::set(qpc, attr.path_mtu);
    Qpc::log_msg_max::set(qpc, context.hca().cap<prm::HcaCap::log_max_msg>());
  }
  return 0;
}

std::uint8_t migration_state(const ib_uverbs_modify_qp& attr, std::uint32_t mask) {
  if ((mask & kPathMigState) == 0) return kPmMigrated;
  switch (attr.path_mig_state) {
    case kMigRearm:
      return kPmRearm;
    case kMigArmed:
      return kPmArmed;
    default:
      return kPmMigrated;
  }
}

int set_paths(Context& context, const RealQp& real, const ib_uverbs_modify_qp& attr,
              std::uint32_t mask, std::uint8_t* qpc) {
  std::uint8_t* const primary = Qpc::primary_address_path::at(qpc);
  std::uint8_t* const alternate = Qpc::secondary_address_path::at(qpc);
  if ((mask & kPkeyIndex) != 0) Path::pkey_index::set(primary, attr.pkey_index);
  if ((mask & kPort) != 0) Path::vhca_port_num::set(primary, attr.port_num);
  if ((mask & kAv) != 0) {
    const std::uint8_t port = (mask & kPort) != 0 ? attr.port_num : real.port;
    if (const int error = set_path(context, attr.dest, port, primary)) return error;
  }
  if ((mask & kTimeout) != 0) Path::ack_timeout::set(primary, attr.timeout);
  if ((mask & kAltPath) != 0) {
    if (const int error = set_path(context, attr.alt_dest, attr.alt_port_num, alternate))
      return error;
    Path::pkey_index::set(alternate, attr.alt_pkey_index);
    Path::ack_timeout::set(alternate, attr.alt_timeout);
  }
  return 0;
}

/// The QP context of a transition command (__mlx5_ib_modify_qp).
int set_context(Context& context, const RealQp& real, const ib_uverbs_modify_qp& attr,
                std::uint32_t mask, std::uint8_t* qpc) {
  const auto service = real.type == IB_UVERBS_QPT_RC   ? prm::QpServiceType::rc
                       : real.type == IB_UVERBS_QPT_UC ? prm::QpServiceType::uc
                       : real.type == IB_UVERBS_QPT_UD ? prm::QpServiceType::ud
                                                       : prm::QpServiceType::xrc;
  Qpc::st::set(qpc, static_cast<std::uint64_t>(service));
  Qpc::pm_state::set(qpc, migration_state(attr, mask));
  if (const int error = set_mtu(context, real, attr, mask, qpc)) return error;
  if (const int error = set_paths(context, real, attr, mask, qpc)) return error;
  if ((mask & kDestQpn) != 0) Qpc::remote_qpn::set(qpc, attr.dest_qp_num);
  Qpc::pd::set(qpc, real.pdn);
  Qpc::cqn_snd::set(qpc, real.cqn_snd);
  Qpc::cqn_rcv::set(qpc, real.cqn_rcv);
  Qpc::log_ack_req_freq::set(qpc, kLogAckRequest);
  if ((mask & kRnrRetry) != 0) Qpc::rnr_retry::set(qpc, attr.rnr_retry);
  if ((mask & kRetryCnt) != 0) Qpc::retry_count::set(qpc, attr.retry_cnt);
  if ((mask & kMaxQpRdAtomic) != 0) Qpc::log_sra_max::set(qpc, log_ceil(attr.max_rd_atomic));
  if ((mask & kSqPsn) != 0) Qpc::next_send_psn::set(qpc, attr.sq_psn);
  if ((mask & kMaxDestRdAtomic) != 0) {
    Qpc::log_rra_max::set(qpc, log_ceil(attr.max_dest_rd_atomic));
  }
  if ((mask & (kAccessFlags | kMaxDestRdAtomic)) != 0) set_rights(real, attr, mask, qpc);
  if ((mask & kMinRnrTimer) != 0) Qpc::min_rnr_nak::set(qpc, attr.min_rnr_timer);
  if ((mask & kRqPsn) != 0) Qpc::next_rcv_psn::set(qpc, attr.rq_psn);
  if ((mask & kQkey) != 0) Qpc::q_key::set(qpc, attr.qkey);
  Qpc::dbr_addr::set(qpc, real.memory.doorbell_iova);
  return 0;
}

/// Checks that ib_uverbs makes before the driver sees the request (modify_qp, uverbs_cmd.c).
int check_ports(const RealQp& real, ib_uverbs_modify_qp& attr) {
  const auto valid = [](std::uint32_t port) { return port == IbDevice::kPort; };
  if ((attr.attr_mask & kPort) != 0 && !valid(attr.port_num)) return EINVAL;
  if ((attr.attr_mask & kAv) != 0) {
    if (!valid(attr.dest.port_num)) return EINVAL;
    if ((attr.attr_mask & kState) != 0 && attr.qp_state == static_cast<unsigned>(IbQpState::rtr)) {
      if (attr.dest.port_num != real.port) return EINVAL;
    } else if ((attr.attr_mask & kPort) == 0) {
      attr.attr_mask |= kPort;
      attr.port_num = attr.dest.port_num;
    } else if (attr.port_num != attr.dest.port_num) {
      return EINVAL;
    }
  }
  if ((attr.attr_mask & kAltPath) != 0 &&
      (!valid(attr.alt_port_num) || !valid(attr.alt_dest.port_num))) {
    return EINVAL;
  }
  return 0;
}

/// Attributes that do not belong to one side of XRC (modify_qp_mask).
std::uint32_t mask_of_type(std::uint8_t type, std::uint32_t mask) {
  if (type == IB_UVERBS_QPT_XRC_INI) return mask & ~(kMaxDestRdAtomic | kMinRnrTimer);
  if (type == IB_UVERBS_QPT_XRC_TGT) return mask & ~(kMaxQpRdAtomic | kRetryCnt | kRnrRetry);
  return mask;
}

int check_values(Context& context, const ib_uverbs_modify_qp& attr, std::uint32_t mask) {
  const Hca& hca = context.hca();
  if ((mask & kPkeyIndex) != 0 && attr.pkey_index >= context.device().pkeys().size()) return EINVAL;
  if ((mask & kMaxQpRdAtomic) != 0 &&
      attr.max_rd_atomic > 1U << hca.cap<prm::HcaCap::log_max_ra_res_qp>()) {
    return EINVAL;
  }
  if ((mask & kMaxDestRdAtomic) != 0 &&
      attr.max_dest_rd_atomic > 1U << hca.cap<prm::HcaCap::log_max_ra_req_qp>()) {
    return EINVAL;
  }
  // The kernel keeps privileged Q_Keys from users unless told otherwise.
  if ((mask & kQkey) != 0 && (attr.qkey & kPrivilegedQkey) != 0) return EPERM;
  return 0;
}

int modify(Context& context, ib_uverbs_modify_qp attr) {
  Qp* const qp = context.qps.find(attr.qp_handle);
  if (qp == nullptr) return ENOENT;
  RealQp& real = *qp->real;
  if (const int error = check_ports(real, attr)) return error;
  constexpr auto last_state = static_cast<std::uint8_t>(IbQpState::error);
  if (((attr.attr_mask & kCurState) != 0 && attr.cur_qp_state > last_state) ||
      ((attr.attr_mask & kState) != 0 && attr.qp_state > last_state)) {
    return EINVAL;
  }
  const std::uint32_t mask = mask_of_type(real.type, attr.attr_mask);
  if ((mask & ~(kStandard | kRateLimit)) != 0) return EOPNOTSUPP;
  const auto from =
      static_cast<IbQpState>((mask & kCurState) != 0 ? attr.cur_qp_state : real.state);
  const IbQpState to = (mask & kState) != 0 ? static_cast<IbQpState>(attr.qp_state) : from;
  if (!qp_transition_allowed(from, to, real.type, mask)) return EINVAL;
  if (const int error = check_values(context, attr, mask)) return error;
  if (from == IbQpState::reset && to == IbQpState::reset) return 0;
  const auto opcode = qp_transition_opcode(from, to);
  if (!opcode) return EINVAL;

  CommandInputBuffer in(*opcode, prm::ModifyQpInput::size);
  prm::ModifyQpInput::qpn::set(in.data(), real.qpn);
  if (from == IbQpState::reset) {
    Qpc::counter_set_id::set(in.at(prm::ModifyQpInput::qpc::offset), context.hca().q_counter_set());
  }
  prm::ModifyQpInput::opt_param_mask::set(in.data(), qp_optional_params(from, to, real.type, mask));
  if (const int error =
          set_context(context, real, attr, mask, in.at(prm::ModifyQpInput::qpc::offset))) {
    return error;
  }
  if (const CommandResult result = execute_plain(context.commands(), in); !result) {
    return result.error;
  }
  real.state = static_cast<std::uint8_t>(to);
  if ((mask & kAccessFlags) != 0) real.access_flags = attr.qp_access_flags;
  if ((mask & kMaxDestRdAtomic) != 0) real.max_dest_rd_atomic = attr.max_dest_rd_atomic;
  if ((mask & kPort) != 0) real.port = attr.port_num;
  return 0;
}

int modify_qp(Context& context, Call& call) {
  ib_uverbs_modify_qp core{};
  if (const int error = call.read_core(core)) return error;
  if ((core.attr_mask & ~kStandard) != 0) return EOPNOTSUPP;
  return modify(context, core);
}

int modify_qp_extended(Context& context, Call& call) {
  ib_uverbs_ex_modify_qp core{};
  if (const int error = call.read_core(core)) return error;
  if ((core.base.attr_mask & ~(kStandard | kRateLimit)) != 0) return EOPNOTSUPP;
  if (!call.udata.empty()) {
    mlx5_ib_modify_qp driver{};
    if (call.udata.size() < offsetof(mlx5_ib_modify_qp, ece_options) + 4) return EINVAL;
    call.read_udata(driver);
    if (driver.comp_mask != 0 || driver.burst_info.reserved != 0 ||
        !call.udata_cleared(sizeof(driver))) {
      return EOPNOTSUPP;
    }
  }
  if (const int error = modify(context, core.base)) return error;
  ib_uverbs_ex_modify_qp_resp response{};
  response.response_length =
      static_cast<std::uint32_t>(std::min(call.core_out.length, sizeof(response)));
  call.write_core(response);
  mlx5_ib_modify_qp_resp driver{};
  driver.response_length = sizeof(driver);
  if (call.udata_out.length >= sizeof(driver)) call.write_udata(driver);
  return 0;
}

std::uint8_t ib_state(std::uint64_t state) {
  switch (static_cast<prm::QpState>(state)) {
    case prm::QpState::reset:
      return static_cast<std::uint8_t>(IbQpState::reset);
    case prm::QpState::init:
      return static_cast<std::uint8_t>(IbQpState::init);
    case prm::QpState::rtr:
      return static_cast<std::uint8_t>(IbQpState::rtr);
    case prm::QpState::rts:
      return static_cast<std::uint8_t>(IbQpState::rts);
    case prm::QpState::sq_error:
      return static_cast<std::uint8_t>(IbQpState::sqe);
    case prm::QpState::sq_drained:
      return static_cast<std::uint8_t>(IbQpState::sqd);
    default:
      return static_cast<std::uint8_t>(IbQpState::error);
  }
}

std::uint8_t ib_migration_state(std::uint64_t state) {
  if (state == kPmArmed) return kMigArmed;
  if (state == kPmRearm) return kMigRearm;
  return kMigMigrated;
}

void get_path(const std::uint8_t* path, ib_uverbs_qp_dest& dest) {
  const std::uint64_t port = Path::vhca_port_num::get(path);
  if (port != IbDevice::kPort) return;
  dest.port_num = static_cast<std::uint8_t>(port);
  dest.sl = static_cast<std::uint8_t>(Path::sl::get(path));
  dest.dlid = static_cast<std::uint16_t>(Path::rlid::get(path));
  dest.src_path_bits = static_cast<std::uint8_t>(Path::mlid::get(path));
  const std::uint64_t rate = Path::stat_rate::get(path);
  dest.static_rate = static_cast<std::uint8_t>(rate > kRateOffset ? rate - kRateOffset : 0);
  if (Path::grh::get(path) == 0) return;
  dest.is_global = 1;
  dest.sgid_index = static_cast<std::uint8_t>(Path::src_addr_index::get(path));
  dest.hop_limit = static_cast<std::uint8_t>(Path::hop_limit::get(path));
  dest.traffic_class = static_cast<std::uint8_t>(Path::tclass::get(path));
  dest.flow_label = static_cast<std::uint32_t>(Path::flow_label::get(path));
  std::memcpy(dest.dgid, Path::rgid_rip::at(path), sizeof(dest.dgid));
}

void get_context(const std::uint8_t* qpc, const RealQp& real, ib_uverbs_query_qp_resp& r) {
  const std::uint8_t* const primary = Qpc::primary_address_path::at(qpc);
  const std::uint8_t* const alternate = Qpc::secondary_address_path::at(qpc);
  r.path_mtu = static_cast<std::uint8_t>(Qpc::mtu::get(qpc));
  r.path_mig_state = ib_migration_state(Qpc::pm_state::get(qpc));
  r.qkey = static_cast<std::uint32_t>(Qpc::q_key::get(qpc));
  r.rq_psn = static_cast<std::uint32_t>(Qpc::next_rcv_psn::get(qpc));
  r.sq_psn = static_cast<std::uint32_t>(Qpc::next_send_psn::get(qpc));
  r.dest_qp_num = static_cast<std::uint32_t>(Qpc::remote_qpn::get(qpc));
  if (Qpc::rre::get(qpc) != 0) r.qp_access_flags |= IB_UVERBS_ACCESS_REMOTE_READ;
  if (Qpc::rwe::get(qpc) != 0) r.qp_access_flags |= IB_UVERBS_ACCESS_REMOTE_WRITE;
  if (Qpc::rae::get(qpc) != 0) r.qp_access_flags |= IB_UVERBS_ACCESS_REMOTE_ATOMIC;
  r.max_rd_atomic = static_cast<std::uint8_t>(1U << Qpc::log_sra_max::get(qpc));
  r.max_dest_rd_atomic = static_cast<std::uint8_t>(1U << Qpc::log_rra_max::get(qpc));
  r.min_rnr_timer = static_cast<std::uint8_t>(Qpc::min_rnr_nak::get(qpc));
  r.retry_cnt = static_cast<std::uint8_t>(Qpc::retry_count::get(qpc));
  r.rnr_retry = static_cast<std::uint8_t>(Qpc::rnr_retry::get(qpc));
  if (real.type != IB_UVERBS_QPT_UD) {
    get_path(primary, r.dest);
    get_path(alternate, r.alt_dest);
    r.alt_pkey_index = static_cast<std::uint16_t>(Path::pkey_index::get(alternate));
    r.alt_port_num = static_cast<std::uint8_t>(Path::vhca_port_num::get(alternate));
  }
  r.pkey_index = static_cast<std::uint16_t>(Path::pkey_index::get(primary));
  r.port_num = static_cast<std::uint8_t>(Path::vhca_port_num::get(primary));
  r.timeout = static_cast<std::uint8_t>(Path::ack_timeout::get(primary));
  r.alt_timeout = static_cast<std::uint8_t>(Path::ack_timeout::get(alternate));
}

int query_qp(Context& context, Call& call) {
  ib_uverbs_query_qp core{};
  if (const int error = call.read_core(core)) return error;
  const Qp* const qp = context.qps.find(core.qp_handle);
  if (qp == nullptr) return ENOENT;
  CommandInputBuffer in(prm::CommandOpcode::query_qp, prm::QueryQpInput::size);
  prm::QueryQpInput::qpn::set(in.data(), qp->real->qpn);
  std::uint8_t out[prm::QueryQpOutput::size] = {};
  if (const CommandResult result = context.commands().execute(in, out); !result)
    return result.error;
  const std::uint8_t* const qpc = out + prm::QueryQpOutput::qpc::offset;
  ib_uverbs_query_qp_resp response{};
  get_context(qpc, *qp->real, response);
  qp->real->state = ib_state(Qpc::state::get(qpc));
  response.qp_state = qp->real->state;
  response.cur_qp_state = qp->real->state;
  // The library knows the sizes of its own queues; the kernel reports those of the RQ only.
  response.max_recv_wr = qp->rq_entries;
  response.max_recv_sge = qp->rq_max_sge;
  response.max_inline_data = 0;
  response.sq_sig_all = qp->signal_all ? 1 : 0;
  call.write_core(response);
  return 0;
}

const WriteCommand kQpStateCommandTable[] = {
    {IB_USER_VERBS_CMD_MODIFY_QP, sizeof(ib_uverbs_modify_qp), 0, false, Needs::context, modify_qp},
    {extended(IB_USER_VERBS_EX_CMD_MODIFY_QP), sizeof(ib_uverbs_modify_qp),
     offsetof(ib_uverbs_ex_modify_qp_resp, response_length) + 4, true, Needs::context,
     modify_qp_extended},
    {IB_USER_VERBS_CMD_QUERY_QP, sizeof(ib_uverbs_query_qp), sizeof(ib_uverbs_query_qp_resp), false,
     Needs::context, query_qp},
};

}  // namespace

const std::span<const WriteCommand> kQpStateCommands = kQpStateCommandTable;

}  // namespace softhca::shim
