// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Queue pairs and work requests.
#include <algorithm>
#include <cstring>

#include "hw-model/prm/address_path.h"
#include "hw-model/prm/commands_qp.h"
#include "hw-model/prm/uar.h"
#include "tests/support/mini_driver.h"

namespace softhca::test {
namespace {

using prm::AddressPath;
using prm::CommandOpcode;
using prm::QpContext;
using prm::WqeOpcode;

bool has_remote_address(WqeOpcode opcode) {
  switch (opcode) {
    case WqeOpcode::rdma_write:
    case WqeOpcode::rdma_write_imm:
    case WqeOpcode::rdma_read:
    case WqeOpcode::atomic_cmp_swap:
    case WqeOpcode::atomic_fetch_add:
      return true;
    default:
      return false;
  }
}

bool is_atomic(WqeOpcode opcode) {
  return opcode == WqeOpcode::atomic_cmp_swap || opcode == WqeOpcode::atomic_fetch_add;
}

void write_entry(std::uint8_t* to, const Sge& sge) {
  prm::DataSegment::byte_count::set(to, sge.length);
  prm::DataSegment::lkey::set(to, sge.lkey);
  prm::DataSegment::address::set(to, sge.address);
}

}  // namespace

DriverQp MiniDriver::create_qp(const DriverCq& send_cq, const DriverCq& recv_cq,
                               const QpOptions& options) {
  DriverQp qp;
  qp.options = options;
  qp.uar = uar_;
  const bool own_rq = options.srqn == 0;
  const std::uint64_t rq_bytes =
      own_rq ? std::uint64_t{16} << (options.log_rq_stride + options.log_rq_size) : 0;
  const std::uint64_t sq_bytes = prm::kWqeBasicBlock << options.log_sq_size;
  qp.rq = memory_.allocate(rq_bytes + sq_bytes);
  qp.sq = qp.rq + rq_bytes;
  qp.doorbell = memory_.allocate(8, 64);

  CommandBuffer create(CommandOpcode::create_qp, prm::CreateQpInput::size);
  std::uint8_t* context = create.at<prm::CreateQpInput::qpc>();
  QpContext::st::set(context, static_cast<unsigned>(options.type));
  QpContext::pm_state::set(context, 3);
  QpContext::pd::set(context, pd_);
  QpContext::uar_page::set(context, uar_);
  QpContext::user_index::set(context, options.user_index);
  QpContext::log_sq_size::set(context, options.log_sq_size);
  QpContext::cqn_snd::set(context, send_cq.cqn);
  QpContext::cqn_rcv::set(context, recv_cq.cqn);
  QpContext::dbr_addr::set(context, qp.doorbell);
  QpContext::rq_type::set(context, own_rq ? 0 : 1);
  QpContext::srqn_rmpn_xrqn::set(context, options.srqn);
  if (own_rq) {
    QpContext::log_rq_size::set(context, options.log_rq_size);
    QpContext::log_rq_stride::set(context, options.log_rq_stride);
  }
  create.append(pages_of(qp.rq, rq_bytes + sq_bytes));
  qp.qpn = static_cast<std::uint32_t>(prm::CreateQpOutput::qpn::get(must(create).out.data()));
  return qp;
}

CommandReply MiniDriver::modify(CommandOpcode opcode, const DriverQp& qp,
                                const std::function<void(std::uint8_t*)>& fill,
                                std::uint32_t opt_mask) {
  CommandBuffer modify(opcode, prm::ModifyQpInput::size);
  modify.set<prm::ModifyQpInput::qpn>(qp.qpn).set<prm::ModifyQpInput::opt_param_mask>(opt_mask);
  std::uint8_t* context = modify.at<prm::ModifyQpInput::qpc>();
  QpContext::st::set(context, static_cast<unsigned>(qp.options.type));
  QpContext::pm_state::set(context, 3);
  AddressPath::vhca_port_num::set(QpContext::primary_address_path::at(context), 1);
  fill(context);
  return run(modify);
}

CommandReply MiniDriver::to_init(const DriverQp& qp, const QpAccess& access, std::uint32_t qkey) {
  return modify(CommandOpcode::rst2init_qp, qp, [&](std::uint8_t* context) {
    QpContext::rre::set(context, access.remote_read ? 1 : 0);
    QpContext::rwe::set(context, access.remote_write ? 1 : 0);
    QpContext::rae::set(context, access.remote_atomic ? 1 : 0);
    QpContext::q_key::set(context, qkey);
  });
}

CommandReply MiniDriver::to_rtr(const DriverQp& qp, std::uint32_t remote_qpn, std::uint16_t dlid,
                                std::uint32_t rcv_psn, unsigned mtu, const QpAccess& access,
                                const QpTimers& timers) {
  const std::uint32_t opt_mask = prm::kOptParamRre | prm::kOptParamRwe | prm::kOptParamRae;
  return modify(
      CommandOpcode::init2rtr_qp, qp,
      [&](std::uint8_t* context) {
        QpContext::mtu::set(context, mtu);
        QpContext::log_msg_max::set(context, 30);
        QpContext::remote_qpn::set(context, remote_qpn);
        QpContext::next_rcv_psn::set(context, rcv_psn);
        QpContext::log_rra_max::set(context, timers.log_rd_atomic);
        QpContext::min_rnr_nak::set(context, timers.min_rnr_nak);
        QpContext::rre::set(context, access.remote_read ? 1 : 0);
        QpContext::rwe::set(context, access.remote_write ? 1 : 0);
        QpContext::rae::set(context, access.remote_atomic ? 1 : 0);
        AddressPath::rlid::set(QpContext::primary_address_path::at(context), dlid);
      },
      qp.options.type == prm::QpServiceType::rc ? opt_mask : 0);
}

CommandReply MiniDriver::to_rts(const DriverQp& qp, std::uint32_t send_psn,
                                const QpTimers& timers) {
  return modify(CommandOpcode::rtr2rts_qp, qp, [&](std::uint8_t* context) {
    QpContext::next_send_psn::set(context, send_psn);
    QpContext::log_sra_max::set(context, timers.log_rd_atomic);
    QpContext::retry_count::set(context, timers.retry_count);
    QpContext::rnr_retry::set(context, timers.rnr_retry);
    AddressPath::ack_timeout::set(QpContext::primary_address_path::at(context), timers.ack_timeout);
  });
}

CommandReply MiniDriver::to_error(const DriverQp& qp) {
  return modify(CommandOpcode::to_err_qp, qp, [](std::uint8_t*) {});
}

CommandReply MiniDriver::to_reset(DriverQp& qp) {
  qp.sq_blocks = 0;
  qp.rq_wqes = 0;
  std::memset(memory_.at(qp.doorbell), 0, 8);
  return modify(CommandOpcode::to_rst_qp, qp, [](std::uint8_t*) {});
}

prm::QpState MiniDriver::query_state(const DriverQp& qp) {
  CommandBuffer query(CommandOpcode::query_qp, 16);
  const CommandReply reply =
      must(query.set<prm::QueryQpInput::qpn>(qp.qpn), prm::QueryQpOutput::size);
  return static_cast<prm::QpState>(
      QpContext::state::get(prm::QueryQpOutput::qpc::at(reply.out.data())));
}

void MiniDriver::post_receive(DriverQp& qp, std::span<const Sge> sges) {
  const std::size_t stride = std::size_t{16} << qp.options.log_rq_stride;
  const std::size_t slot = qp.rq_wqes % (1U << qp.options.log_rq_size);
  std::uint8_t* wqe = memory_.bytes(qp.rq + slot * stride);
  for (std::size_t i = 0; i < stride / prm::DataSegment::size && i <= sges.size(); ++i) {
    write_entry(wqe + i * prm::DataSegment::size,
                i < sges.size() ? sges[i] : Sge{0, 0, prm::kInvalidLkey});
  }
  ++qp.rq_wqes;
  store_record(qp.doorbell, qp.rq_wqes);
}

std::size_t MiniDriver::write_segments(std::uint8_t* wqe, const DriverQp& qp,
                                       const SendRequest& request) {
  std::size_t at = prm::CtrlSegment::size;
  if (qp.options.type == prm::QpServiceType::ud) {
    using prm::AddressVector;
    AddressVector::qkey::set(wqe + at, request.qkey);
    AddressVector::extended::set(wqe + at, 1);
    AddressVector::destination_qpn::set(wqe + at, request.remote_qpn);
    AddressVector::destination_lid::set(wqe + at, request.dlid);
    if (request.dgid) {
      AddressVector::grh_present::set(wqe + at, 1);
      AddressVector::hop_limit::set(wqe + at, 1);
      std::ranges::copy(*request.dgid, AddressVector::destination_gid::at(wqe + at));
    }
    at += AddressVector::size;
  }
  if (has_remote_address(request.opcode)) {
    prm::RemoteAddressSegment::virtual_address::set(wqe + at, request.remote_address);
    prm::RemoteAddressSegment::rkey::set(wqe + at, request.rkey);
    at += prm::RemoteAddressSegment::size;
  }
  if (is_atomic(request.opcode)) {
    prm::AtomicSegment::swap_add::set(wqe + at, request.swap_add);
    prm::AtomicSegment::compare::set(wqe + at, request.compare);
    at += prm::AtomicSegment::size;
  }
  if (!request.inline_data.empty()) {
    prm::Field<0, 32>::set(wqe + at, prm::InlineSegment::kInlineFlag | request.inline_data.size());
    std::memcpy(wqe + at + prm::InlineSegment::header_size, request.inline_data.data(),
                request.inline_data.size());
    at += prm::InlineSegment::units(request.inline_data.size()) * prm::kWqeUnit;
  }
  for (const Sge& sge : request.sges) {
    write_entry(wqe + at, sge);
    at += prm::DataSegment::size;
  }
  return at;
}

std::uint16_t MiniDriver::queue_send(DriverQp& qp, const SendRequest& request) {
  std::array<std::uint8_t, prm::kWqeMaxSendBytes> wqe{};
  const std::size_t length = write_segments(wqe.data(), qp, request);
  using prm::CtrlSegment;
  CtrlSegment::wqe_index::set(wqe.data(), qp.sq_blocks);
  CtrlSegment::opcode::set(wqe.data(), static_cast<unsigned>(request.opcode));
  CtrlSegment::qpn::set(wqe.data(), qp.qpn);
  CtrlSegment::ds_count::set(wqe.data(), length / prm::kWqeUnit);
  CtrlSegment::completion::set(
      wqe.data(), request.signaled ? static_cast<unsigned>(prm::CompletionMode::always) : 0);
  CtrlSegment::solicited::set(wqe.data(), request.solicited ? 1 : 0);
  if (request.fence)
    CtrlSegment::fence_mode::set(wqe.data(), static_cast<unsigned>(prm::FenceMode::fence));
  CtrlSegment::immediate::set(wqe.data(), request.immediate);

  const std::uint16_t index = qp.sq_blocks;
  const std::size_t ring = prm::kWqeBasicBlock << qp.options.log_sq_size;
  const std::size_t start = index * prm::kWqeBasicBlock % ring;
  const std::size_t first = std::min(length, ring - start);
  std::memcpy(memory_.at(qp.sq + start), wqe.data(), first);
  std::memcpy(memory_.at(qp.sq), wqe.data() + first, length - first);
  qp.sq_blocks = static_cast<std::uint16_t>(qp.sq_blocks + (length + prm::kWqeBasicBlock - 1) /
                                                               prm::kWqeBasicBlock);
  store_record(qp.doorbell + 4, qp.sq_blocks);
  return index;
}

void MiniDriver::ring_sq(const DriverQp& qp) {
  write64(qp.uar * prm::kUarPageSize + prm::Uar::blue_flame, 0, qp.qpn << 8);
}

std::uint16_t MiniDriver::post_send(DriverQp& qp, const SendRequest& request) {
  const std::uint16_t index = queue_send(qp, request);
  ring_sq(qp);
  return index;
}

}  // namespace softhca::test
