// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <cerrno>
#include <mutex>

#include "provider/address_handle.h"
#include "provider/qp.h"

namespace softhca::provider {
namespace {

/// Device opcode of a verbs opcode; false for one that this provider does not post.
bool device_opcode(ibv_wr_opcode opcode, prm::WqeOpcode& result) {
  switch (opcode) {
    case IBV_WR_RDMA_WRITE:
      result = prm::WqeOpcode::rdma_write;
      return true;
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      result = prm::WqeOpcode::rdma_write_imm;
      return true;
    case IBV_WR_SEND:
      result = prm::WqeOpcode::send;
      return true;
    case IBV_WR_SEND_WITH_IMM:
      result = prm::WqeOpcode::send_imm;
      return true;
    case IBV_WR_SEND_WITH_INV:
      result = prm::WqeOpcode::send_invalidate;
      return true;
    case IBV_WR_RDMA_READ:
      result = prm::WqeOpcode::rdma_read;
      return true;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      result = prm::WqeOpcode::atomic_cmp_swap;
      return true;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      result = prm::WqeOpcode::atomic_fetch_add;
      return true;
    case IBV_WR_LOCAL_INV:
    case IBV_WR_BIND_MW:
      result = prm::WqeOpcode::umr;
      return true;
    default:
      return false;
  }
}

/// True if a QP of this type may carry the operation.
bool allowed(ibv_qp_type type, ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_RDMA_READ:
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND;
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
      return true;
    default:
      return type != IBV_QPT_UD;
  }
}

bool is_atomic(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

std::uint32_t immediate_raw(const ibv_send_wr& wr) {
  switch (wr.opcode) {
    case IBV_WR_SEND_WITH_IMM:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return wr.imm_data;
    case IBV_WR_SEND_WITH_INV:
    case IBV_WR_LOCAL_INV:
      return prm::Be32::swap(wr.invalidate_rkey);
    case IBV_WR_BIND_MW:
      return prm::Be32::swap(wr.bind_mw.mw->rkey);
    default:
      return 0;
  }
}

/// Segments between the control segment and the data; 0 or an errno.
int write_operation(const QueuePair& qp, const ibv_send_wr& wr, WqeWriter& writer) {
  const ibv_qp_type type = qp.verbs.qp.qp_type;
  if (type == IBV_QPT_UD) {
    if (wr.wr.ud.ah == nullptr) return EINVAL;
    write_address(*writer.segment<prm::AddressVectorWords>(), wr.wr.ud.ah, wr.wr.ud.remote_qpn,
                  wr.wr.ud.remote_qkey);
    return 0;
  }
  const bool umr = wr.opcode == IBV_WR_BIND_MW || wr.opcode == IBV_WR_LOCAL_INV;
  if (type == IBV_QPT_XRC_SEND && !umr) {
    auto* xrc = writer.segment<prm::XrcWords>();
    *xrc = prm::XrcWords{};
    xrc->srqn = wr.qp_type.xrc.remote_srqn;
  }
  switch (wr.opcode) {
    case IBV_WR_RDMA_READ:
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      writer.remote_address(wr.wr.rdma.remote_addr, wr.wr.rdma.rkey);
      return 0;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      writer.remote_address(wr.wr.atomic.remote_addr, wr.wr.atomic.rkey);
      writer.atomic(wr.wr.atomic.swap, wr.wr.atomic.compare_add);
      return 0;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      writer.remote_address(wr.wr.atomic.remote_addr, wr.wr.atomic.rkey);
      writer.atomic(wr.wr.atomic.compare_add, 0);
      return 0;
    case IBV_WR_BIND_MW:
      if (wr.bind_mw.bind_info.length > kMaxBindLength) return EOPNOTSUPP;
      write_bind(writer, wr.bind_mw.mw->type, wr.bind_mw.rkey, wr.bind_mw.bind_info, qp.sq.qpn);
      return 0;
    case IBV_WR_LOCAL_INV:
      write_bind(writer, IBV_MW_TYPE_2, 0, ibv_mw_bind_info{}, qp.sq.qpn);
      return 0;
    default:
      return 0;
  }
}

int write_data(const QueuePair& qp, const ibv_send_wr& wr, WqeWriter& writer) {
  if ((wr.send_flags & IBV_SEND_INLINE) != 0) {
    if (wr.num_sge == 0) return 0;
    writer.begin_inline();
    for (int i = 0; i < wr.num_sge; ++i) {
      const auto* data =
          reinterpret_cast<const void*>(static_cast<std::uintptr_t>(wr.sg_list[i].addr));
      if (!writer.append_inline(data, wr.sg_list[i].length)) return ENOMEM;
    }
    writer.finish_inline();
    return 0;
  }
  if (wr.num_sge < 0 || static_cast<std::uint32_t>(wr.num_sge) > qp.sq.max_sge) return ENOMEM;
  for (int i = 0; i < wr.num_sge; ++i) {
    const ibv_sge& sge = wr.sg_list[i];
    writer.data(sge.addr, is_atomic(wr.opcode) ? 8 : sge.length, sge.lkey);
  }
  return 0;
}

/// Writes one WQE at the producer; 0 or an errno, and then nothing was taken.
int write_one(QueuePair& qp, const ibv_send_wr& wr, std::uint32_t pending, WqeWriter& writer) {
  SendQueue& sq = qp.sq;
  prm::WqeOpcode opcode{};
  if (!device_opcode(wr.opcode, opcode)) return EINVAL;
  if (!allowed(qp.verbs.qp.qp_type, wr.opcode)) return EINVAL;
  if (sq.full(pending)) return ENOMEM;

  prm::CtrlWords* ctrl = writer.begin(sq.producer);
  ctrl->signature = 0;
  ctrl->dci_stream.raw = 0;
  ctrl->immediate.raw = immediate_raw(wr);
  std::uint8_t flags = sq.signal_all;
  flags |=
      (wr.send_flags & IBV_SEND_FENCE) != 0 ? prm::CtrlWords::kFenceSmallAndFence : sq.next_fence;
  if ((wr.send_flags & IBV_SEND_SIGNALED) != 0) flags |= prm::CtrlWords::kCqUpdate;
  if ((wr.send_flags & IBV_SEND_SOLICITED) != 0) flags |= prm::CtrlWords::kSolicited;
  ctrl->fm_ce_se = flags;
  if (const int error = write_operation(qp, wr, writer); error != 0) return error;
  if (const int error = write_data(qp, wr, writer); error != 0) return error;
  writer.finish(opcode);

  SendSlot& slot = sq.slot(sq.producer);
  slot.wr_id = wr.wr_id;
  slot.completed = sq.head + pending + 1;
  slot.set_operation(opcode, wr.opcode == IBV_WR_BIND_MW ? IBV_WC_BIND_MW : IBV_WC_LOCAL_INV);
  // What follows a change of memory keys must not overtake it.
  sq.next_fence = opcode == prm::WqeOpcode::umr ? prm::CtrlWords::kFenceInitiatorSmall : 0;
  sq.producer += writer.blocks();
  return 0;
}

}  // namespace

int post_held(QueuePair& qp, ibv_send_wr* wr, ibv_send_wr** bad) {
  const std::lock_guard guard(qp.sq.lock, std::adopt_lock);
  if (!qp.can_send || qp.sq.block_count == 0) {
    *bad = wr;
    return EINVAL;
  }
  WqeWriter writer(qp.sq);
  const prm::CtrlWords* last = nullptr;
  std::uint32_t units = 0;
  std::uint32_t count = 0;
  bool inlined = false;
  int error = 0;
  for (; wr != nullptr; wr = wr->next) {
    error = write_one(qp, *wr, count, writer);
    if (error != 0) {
      *bad = wr;
      break;
    }
    ++count;
    last = writer.ctrl();
    units = writer.units();
    inlined = (wr->send_flags & IBV_SEND_INLINE) != 0;
  }
  qp.sq.ring(count, last, units, inlined);
  return error;
}

int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind) {
  const ibv_mw_bind_info& info = bind->bind_info;
  if (mw->type != IBV_MW_TYPE_1 || (info.mr == nullptr && (info.addr != 0 || info.length != 0))) {
    errno = EINVAL;
    return errno;
  }
  if (info.mr != nullptr && info.mr->pd != mw->pd) {
    errno = EPERM;
    return errno;
  }
  ibv_send_wr wr{};
  ibv_send_wr* bad = nullptr;
  wr.opcode = IBV_WR_BIND_MW;
  wr.wr_id = bind->wr_id;
  wr.send_flags = bind->send_flags;
  wr.bind_mw.mw = mw;
  wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
  wr.bind_mw.bind_info = info;
  const int error = post_send(qp, &wr, &bad);
  if (error == 0) mw->rkey = wr.bind_mw.rkey;
  return error;
}

}  // namespace softhca::provider
