// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <cerrno>

#include "provider/address_handle.h"
#include "provider/qp.h"

/// The ibv_wr_* builder. An operation begins a WQE, setters add to it, and the next operation or
/// ibv_wr_complete() finishes it; a failure anywhere rolls the whole batch back at
/// ibv_wr_complete().
namespace softhca::provider {
namespace {

void fail(QueuePair& qp, int error) {
  if (qp.builder.error == 0) qp.builder.error = error;
}

/// Ends the WQE in progress, if there is one.
void finish(QueuePair& qp) {
  SendBuilder& builder = qp.builder;
  if (!builder.open) return;
  builder.open = false;
  builder.writer.finish(builder.opcode);
  qp.sq.producer += builder.writer.blocks();
  ++builder.count;
}

/// Begins a WQE and writes what all have in common, and the XRC segment. False when the batch has
/// failed. Part of every operation, which has constants to say.
[[gnu::always_inline]] inline bool begin(ibv_qp_ex* base, prm::WqeOpcode opcode,
                                         std::uint32_t immediate_raw,
                                         ibv_wc_opcode umr_opcode = IBV_WC_LOCAL_INV) {
  QueuePair& qp = *QueuePair::of(base);
  SendBuilder& builder = qp.builder;
  finish(qp);
  if (builder.error != 0) return false;
  SendQueue& sq = qp.sq;
  if (sq.full(builder.count)) {
    fail(qp, ENOMEM);
    return false;
  }
  prm::CtrlWords* ctrl = builder.writer.begin(sq.producer);
  ctrl->signature = 0;
  ctrl->dci_stream.raw = 0;
  ctrl->immediate.raw = immediate_raw;
  const unsigned wr_flags = base->wr_flags;
  std::uint8_t flags = sq.signal_all;
  flags |= (wr_flags & IBV_SEND_FENCE) != 0 ? prm::CtrlWords::kFenceSmallAndFence : sq.next_fence;
  if ((wr_flags & IBV_SEND_SIGNALED) != 0) flags |= prm::CtrlWords::kCqUpdate;
  if ((wr_flags & IBV_SEND_SOLICITED) != 0) flags |= prm::CtrlWords::kSolicited;
  ctrl->fm_ce_se = flags;
  sq.next_fence = opcode == prm::WqeOpcode::umr ? prm::CtrlWords::kFenceInitiatorSmall : 0;

  SendSlot& slot = sq.slot(sq.producer);
  slot.wr_id = base->wr_id;
  slot.completed = sq.head + builder.count + 1;
  slot.set_operation(opcode, umr_opcode);
  builder.opcode = opcode;
  builder.open = true;
  if (qp.verbs.qp.qp_type == IBV_QPT_XRC_SEND && opcode != prm::WqeOpcode::umr) {
    *builder.writer.segment<prm::XrcWords>() = prm::XrcWords{};
  } else if (qp.verbs.qp.qp_type == IBV_QPT_UD) {
    *builder.writer.segment<prm::AddressVectorWords>() = prm::AddressVectorWords{};
  }
  return true;
}

/// The segment right after the control segment, which the address setters fill.
template <typename Segment>
Segment* after_ctrl(QueuePair& qp) {
  return reinterpret_cast<Segment*>(qp.builder.writer.ctrl() + 1);
}

bool in_wqe(ibv_qp_ex* base) {
  SendBuilder& builder = QueuePair::of(base)->builder;
  return builder.open && builder.error == 0;
}

void wr_send(ibv_qp_ex* qp) {
  begin(qp, prm::WqeOpcode::send, 0);
}
void wr_send_imm(ibv_qp_ex* qp, __be32 imm) {
  begin(qp, prm::WqeOpcode::send_imm, imm);
}
void wr_send_inv(ibv_qp_ex* qp, std::uint32_t rkey) {
  begin(qp, prm::WqeOpcode::send_invalidate, prm::Be32::swap(rkey));
}

[[gnu::always_inline]] inline void with_remote(ibv_qp_ex* qp, prm::WqeOpcode opcode,
                                               std::uint32_t immediate_raw, std::uint32_t rkey,
                                               std::uint64_t address) {
  if (begin(qp, opcode, immediate_raw))
    QueuePair::of(qp)->builder.writer.remote_address(address, rkey);
}
void wr_rdma_write(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address) {
  with_remote(qp, prm::WqeOpcode::rdma_write, 0, rkey, address);
}
void wr_rdma_write_imm(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address, __be32 imm) {
  with_remote(qp, prm::WqeOpcode::rdma_write_imm, imm, rkey, address);
}
void wr_rdma_read(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address) {
  with_remote(qp, prm::WqeOpcode::rdma_read, 0, rkey, address);
}

void wr_atomic_cmp_swp(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address,
                       std::uint64_t compare, std::uint64_t swap) {
  if (!begin(qp, prm::WqeOpcode::atomic_cmp_swap, 0)) return;
  WqeWriter& writer = QueuePair::of(qp)->builder.writer;
  writer.remote_address(address, rkey);
  writer.atomic(swap, compare);
}
void wr_atomic_fetch_add(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address,
                         std::uint64_t add) {
  if (!begin(qp, prm::WqeOpcode::atomic_fetch_add, 0)) return;
  WqeWriter& writer = QueuePair::of(qp)->builder.writer;
  writer.remote_address(address, rkey);
  writer.atomic(add, 0);
}

void wr_local_inv(ibv_qp_ex* base, std::uint32_t rkey) {
  if (!begin(base, prm::WqeOpcode::umr, prm::Be32::swap(rkey), IBV_WC_LOCAL_INV)) return;
  QueuePair& qp = *QueuePair::of(base);
  write_bind(qp.builder.writer, IBV_MW_TYPE_2, 0, ibv_mw_bind_info{}, qp.sq.qpn);
}
void wr_bind_mw(ibv_qp_ex* base, ibv_mw* mw, std::uint32_t rkey, const ibv_mw_bind_info* info) {
  QueuePair& qp = *QueuePair::of(base);
  if (info->length > kMaxBindLength || (info->length != 0 && info->mr == nullptr)) {
    fail(qp, EINVAL);
    return;
  }
  if (!begin(base, prm::WqeOpcode::umr, prm::Be32::swap(mw->rkey), IBV_WC_BIND_MW)) return;
  write_bind(qp.builder.writer, mw->type, rkey, *info, qp.sq.qpn);
}

void wr_set_ud_addr(ibv_qp_ex* base, ibv_ah* ah, std::uint32_t remote_qpn,
                    std::uint32_t remote_qkey) {
  QueuePair& qp = *QueuePair::of(base);
  if (!in_wqe(base)) return;
  write_address(*after_ctrl<prm::AddressVectorWords>(qp), ah, remote_qpn, remote_qkey);
}
void wr_set_xrc_srqn(ibv_qp_ex* base, std::uint32_t srqn) {
  if (in_wqe(base)) after_ctrl<prm::XrcWords>(*QueuePair::of(base))->srqn = srqn;
}

void wr_set_sge(ibv_qp_ex* base, std::uint32_t lkey, std::uint64_t address, std::uint32_t length) {
  QueuePair& qp = *QueuePair::of(base);
  if (!in_wqe(base)) return;
  if (qp.sq.max_sge == 0) {
    fail(qp, ENOMEM);
    return;
  }
  qp.builder.writer.data(address, length, lkey);
}
void wr_set_sge_list(ibv_qp_ex* base, std::size_t count, const ibv_sge* list) {
  QueuePair& qp = *QueuePair::of(base);
  if (!in_wqe(base)) return;
  if (count > qp.sq.max_sge) {
    fail(qp, ENOMEM);
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    qp.builder.writer.data(list[i].addr, list[i].length, list[i].lkey);
  }
}

void wr_set_inline_data_list(ibv_qp_ex* base, std::size_t count, const ibv_data_buf* list) {
  QueuePair& qp = *QueuePair::of(base);
  if (!in_wqe(base)) return;
  qp.builder.writer.begin_inline();
  for (std::size_t i = 0; i < count; ++i) {
    if (!qp.builder.writer.append_inline(list[i].addr, list[i].length)) {
      fail(qp, ENOMEM);
      return;
    }
  }
  qp.builder.writer.finish_inline();
  qp.builder.used_inline = true;
}
void wr_set_inline_data(ibv_qp_ex* base, void* address, std::size_t length) {
  const ibv_data_buf one{address, length};
  wr_set_inline_data_list(base, 1, &one);
}

void wr_start(ibv_qp_ex* base) {
  QueuePair& qp = *QueuePair::of(base);
  qp.sq.lock.lock();
  SendBuilder& builder = qp.builder;
  builder.writer.attach(qp.sq);
  builder.open = false;
  builder.used_inline = false;
  builder.error = qp.can_send ? 0 : EINVAL;
  builder.count = 0;
  builder.producer = qp.sq.producer;
  builder.next_fence = qp.sq.next_fence;
}

void roll_back(QueuePair& qp) {
  qp.builder.open = false;
  qp.sq.producer = qp.builder.producer;
  qp.sq.next_fence = qp.builder.next_fence;
}

int wr_complete(ibv_qp_ex* base) {
  QueuePair& qp = *QueuePair::of(base);
  SendBuilder& builder = qp.builder;
  const int error = builder.error;
  if (error != 0) {
    roll_back(qp);
  } else {
    finish(qp);
    qp.sq.ring(builder.count, builder.writer.ctrl(), builder.writer.units(), builder.used_inline);
  }
  qp.sq.lock.unlock();
  return error;
}

void wr_abort(ibv_qp_ex* base) {
  QueuePair& qp = *QueuePair::of(base);
  roll_back(qp);
  qp.sq.lock.unlock();
}

}  // namespace

void install_builder(QueuePair& qp) {
  ibv_qp_ex& ex = qp.verbs.qp_ex;
  const ibv_qp_type type = qp.verbs.qp.qp_type;
  ex.wr_start = wr_start;
  ex.wr_complete = wr_complete;
  ex.wr_abort = wr_abort;
  ex.wr_send = wr_send;
  ex.wr_send_imm = wr_send_imm;
  ex.wr_set_sge = wr_set_sge;
  ex.wr_set_sge_list = wr_set_sge_list;
  ex.wr_set_inline_data = wr_set_inline_data;
  ex.wr_set_inline_data_list = wr_set_inline_data_list;
  if (type == IBV_QPT_UD) {
    ex.wr_set_ud_addr = wr_set_ud_addr;
    return;
  }
  ex.wr_send_inv = wr_send_inv;
  ex.wr_rdma_write = wr_rdma_write;
  ex.wr_rdma_write_imm = wr_rdma_write_imm;
  ex.wr_local_inv = wr_local_inv;
  ex.wr_bind_mw = wr_bind_mw;
  if (type == IBV_QPT_XRC_SEND) ex.wr_set_xrc_srqn = wr_set_xrc_srqn;
  if (type == IBV_QPT_UC) return;
  ex.wr_rdma_read = wr_rdma_read;
  ex.wr_atomic_cmp_swp = wr_atomic_cmp_swp;
  ex.wr_atomic_fetch_add = wr_atomic_fetch_add;
}

}  // namespace softhca::provider
