// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <endian.h>

#include <cerrno>
#include <cstring>

#include "tests/verbs/endpoint.h"

namespace softhca::verbs_check {
namespace {

std::uint64_t operations(ibv_qp_type type) {
  std::uint64_t ops =
      static_cast<std::uint64_t>(IBV_QP_EX_WITH_SEND) | IBV_QP_EX_WITH_SEND_WITH_IMM;
  if (type == IBV_QPT_UD) return ops;
  ops |= static_cast<std::uint64_t>(IBV_QP_EX_WITH_RDMA_WRITE) | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
  if (type == IBV_QPT_UC) return ops;
  return ops | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
         IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
}

void modify(ibv_qp* qp, ibv_qp_attr& attr, int mask, const char* to) {
  const int error = ibv_modify_qp(qp, &attr, mask);
  require(error == 0, std::string("modify QP to ") + to + ": " + std::strerror(error));
}

/// Fields that depend on the operation, for ibv_post_send.
void set_operation(ibv_send_wr& wr, const Request& request, ibv_qp_type type) {
  if (type == IBV_QPT_UD) {
    wr.wr.ud = {request.ah, request.remote_qpn, QueuePair::kQkey};
    return;
  }
  switch (request.opcode) {
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      wr.wr.atomic = {request.remote_address, request.compare_add, request.swap, request.rkey};
      break;
    default:
      wr.wr.rdma = {request.remote_address, request.rkey};
      break;
  }
}

/// The operation, for the builder.
void build_operation(ibv_qp_ex* qp, const Request& request) {
  const __be32 imm = htobe32(request.imm_data);
  switch (request.opcode) {
    case IBV_WR_SEND:
      ibv_wr_send(qp);
      break;
    case IBV_WR_SEND_WITH_IMM:
      ibv_wr_send_imm(qp, imm);
      break;
    case IBV_WR_RDMA_WRITE:
      ibv_wr_rdma_write(qp, request.rkey, request.remote_address);
      break;
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      ibv_wr_rdma_write_imm(qp, request.rkey, request.remote_address, imm);
      break;
    case IBV_WR_RDMA_READ:
      ibv_wr_rdma_read(qp, request.rkey, request.remote_address);
      break;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      ibv_wr_atomic_cmp_swp(qp, request.rkey, request.remote_address, request.compare_add,
                            request.swap);
      break;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      ibv_wr_atomic_fetch_add(qp, request.rkey, request.remote_address, request.compare_add);
      break;
    default:
      throw Failure("the check has no builder for this operation");
  }
}

}  // namespace

QueuePair::QueuePair(const Device& device, CompletionQueue& send_cq, CompletionQueue& recv_cq,
                     const Style& style, const QpOptions& options)
    : device_(&device), style_(style), options_(options) {
  ibv_qp_init_attr_ex attr{};
  attr.send_cq = send_cq.get();
  attr.recv_cq = recv_cq.get();
  attr.srq = options.srq;
  attr.cap = {options.send_wr, options.srq != nullptr ? 0 : options.recv_wr, options.sge,
              options.srq != nullptr ? 0 : options.sge, options.inline_data};
  attr.qp_type = options.type;
  attr.sq_sig_all = options.signal_all ? 1 : 0;
  attr.comp_mask = IBV_QP_INIT_ATTR_PD;
  attr.pd = device.pd();
  if (style.builder) {
    attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.send_ops_flags = operations(options.type);
  }
  qp_.reset(ibv_create_qp_ex(device.context(), &attr));
  require(qp_ != nullptr, std::string("ibv_create_qp_ex: ") + std::strerror(errno));
  require(
      attr.cap.max_send_wr >= options.send_wr && attr.cap.max_inline_data >= options.inline_data,
      "the QP has less than was asked for");
  to_init();
}

void QueuePair::to_init() {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.pkey_index = 0;
  attr.port_num = Device::kPort;
  int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
  if (options_.type == IBV_QPT_UD) {
    attr.qkey = kQkey;
    mask |= IBV_QP_QKEY;
  } else {
    attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    if (options_.type == IBV_QPT_RC) {
      attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    }
    mask |= IBV_QP_ACCESS_FLAGS;
  }
  modify(get(), attr, mask, "INIT");
}

void QueuePair::to_ready_to_receive() {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  int mask = IBV_QP_STATE;
  if (options_.type != IBV_QPT_UD) {
    attr.path_mtu = style_.mtu;
    attr.dest_qp_num = remote_.number;
    attr.rq_psn = remote_.psn;
    attr.ah_attr.dlid = remote_.lid;
    attr.ah_attr.port_num = Device::kPort;
    mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  }
  if (options_.type == IBV_QPT_RC) {
    attr.max_dest_rd_atomic = 4;
    attr.min_rnr_timer = options_.min_rnr_timer;
    mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  }
  modify(get(), attr, mask, "RTR");
}

void QueuePair::to_ready_to_send() {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = local_.psn;
  int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (options_.type == IBV_QPT_RC) {
    attr.timeout = options_.timeout;
    attr.retry_cnt = options_.retry_count;
    attr.rnr_retry = options_.rnr_retry;
    attr.max_rd_atomic = 4;
    mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  }
  modify(get(), attr, mask, "RTS");
}

void QueuePair::connect(Side& side) {
  // Close to the wrap of the 24-bit packet sequence number, so that long messages cross it.
  local_ = {number(), 0xfffff0 + (number() & 0xf), device_->port().lid, device_->gid()};
  remote_ = side.exchange(local_);
  to_ready_to_receive();
  to_ready_to_send();
  side.barrier();
}

int QueuePair::post_built(const Request& request) {
  ibv_qp_ex* qp = ibv_qp_to_qp_ex(get());
  require(qp != nullptr, "ibv_qp_to_qp_ex gives nothing");
  ibv_wr_start(qp);
  qp->wr_id = request.wr_id;
  qp->wr_flags = request.flags & ~static_cast<unsigned>(IBV_SEND_INLINE);
  build_operation(qp, request);
  if (options_.type == IBV_QPT_UD) ibv_wr_set_ud_addr(qp, request.ah, request.remote_qpn, kQkey);
  if ((request.flags & IBV_SEND_INLINE) != 0) {
    std::vector<ibv_data_buf> pieces;
    for (const ibv_sge& sge : request.sges) {
      pieces.push_back(
          {reinterpret_cast<void*>(static_cast<std::uintptr_t>(sge.addr)), sge.length});
    }
    ibv_wr_set_inline_data_list(qp, pieces.size(), pieces.data());
  } else if (request.sges.size() == 1) {
    ibv_wr_set_sge(qp, request.sges[0].lkey, request.sges[0].addr, request.sges[0].length);
  } else {
    ibv_wr_set_sge_list(qp, request.sges.size(), request.sges.data());
  }
  return ibv_wr_complete(qp);
}

int QueuePair::try_post(const Request& request) {
  if (style_.builder) return post_built(request);
  std::vector<ibv_sge> sges = request.sges;
  ibv_send_wr wr{};
  wr.wr_id = request.wr_id;
  wr.opcode = request.opcode;
  wr.sg_list = sges.data();
  wr.num_sge = static_cast<int>(sges.size());
  wr.send_flags = request.flags;
  wr.imm_data = htobe32(request.imm_data);
  set_operation(wr, request, options_.type);
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(get(), &wr, &bad);
}

void QueuePair::post(const Request& request) {
  const int error = try_post(request);
  require(error == 0, std::string("posting a send: ") + std::strerror(error));
}

void QueuePair::post_receive(std::uint64_t wr_id, std::vector<ibv_sge> sges) {
  ibv_recv_wr wr{};
  wr.wr_id = wr_id;
  wr.sg_list = sges.data();
  wr.num_sge = static_cast<int>(sges.size());
  ibv_recv_wr* bad = nullptr;
  const int error = ibv_post_recv(get(), &wr, &bad);
  require(error == 0, std::string("posting a receive: ") + std::strerror(error));
}

void QueuePair::modify_to_error() {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  modify(get(), attr, IBV_QP_STATE, "ERR");
}

ibv_qp_state QueuePair::state() const {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  require(ibv_query_qp(get(), &attr, IBV_QP_STATE, &init) == 0, "ibv_query_qp failed");
  return attr.qp_state;
}

}  // namespace softhca::verbs_check
