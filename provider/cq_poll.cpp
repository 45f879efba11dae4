// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <atomic>
#include <cerrno>
#include <mutex>

#include "hw-model/prm/uar.h"
#include "kernel-shim/protocol/polite_poller.h"
#include "provider/cq_plain.h"
#include "provider/ordering.h"
#include "provider/qp.h"
#include "provider/srq.h"

namespace softhca::provider {
void poll_politely(CompletionQueue& cq) {
  static const Nanoseconds call_cost = shim::PolitePoller::measure_call();
  thread_local shim::PolitePoller poller(call_cost);
  const bool shared = poller.yield_if_due(cq.hints->engine_processor());
  cq.patience.store(shared ? 1 : CompletionQueue::kEmptyPolls, std::memory_order_relaxed);
}

namespace {

prm::CqeOpcode opcode_field(const prm::CqeWords& cqe) {
  return static_cast<prm::CqeOpcode>(cqe.op_own >> 4);
}

/// A requester CQE stands for every work request up to its own.
void complete_send(QueuePair& qp, const prm::CqeWords& cqe, Completion& completion) {
  const SendSlot& slot = qp.sq.slot(cqe.wqe_counter);
  completion.wr_id = slot.wr_id;
  completion.wc_opcode = slot.wc_opcode;
  completion.qp = &qp;
  qp.sq.tail.store(slot.completed, std::memory_order_release);
}

bool complete_receive(Resource& resource, const prm::CqeWords& cqe, Completion& completion) {
  SharedReceiveQueue* srq = nullptr;
  if (resource.kind == Resource::Kind::shared_receive_queue) {
    srq = SharedReceiveQueue::of(&resource);
  } else {
    completion.qp = QueuePair::of(&resource);
    srq = completion.qp->srq;
  }
  if (srq != nullptr) return srq->ring.complete(cqe.wqe_counter, completion.wr_id);
  if (completion.qp->rq.count == 0) return false;
  completion.wr_id = completion.qp->rq.complete();
  return true;
}

bool is_error(prm::CqeOpcode opcode) {
  return opcode == prm::CqeOpcode::requester_error || opcode == prm::CqeOpcode::responder_error;
}

void fill(ibv_wc& wc, const prm::CqeWords& cqe, const Completion& completion) {
  wc.wr_id = completion.wr_id;
  wc.status = completion.status;
  wc.qp_num = cqe.sop_qpn & 0xffffff;
  wc.wc_flags = 0;
  if (is_error(opcode_field(cqe))) {
    wc.vendor_err = cqe.vendor_syndrome();
    return;
  }
  wc.vendor_err = 0;
  wc.opcode = opcode_of(cqe, completion.wc_opcode);
  wc.wc_flags = flags_of(cqe);
  wc.byte_len = cqe.byte_count;
  if (opcode_field(cqe) == prm::CqeOpcode::requester) {
    if (wc.opcode == IBV_WC_COMP_SWAP || wc.opcode == IBV_WC_FETCH_ADD) wc.byte_len = 8;
    return;
  }
  if ((wc.wc_flags & IBV_WC_WITH_INV) != 0) {
    wc.invalidated_rkey = cqe.immediate;
  } else {
    wc.imm_data = cqe.immediate.raw;
  }
  const std::uint32_t flags = cqe.flags_rqpn;
  wc.src_qp = flags & 0xffffff;
  wc.sl = flags >> 24 & 0xf;
  wc.slid = cqe.source_lid;
  wc.dlid_path_bits = cqe.ml_path & 0x7f;
  wc.pkey_index = static_cast<std::uint16_t>(cqe.immediate);
}

}  // namespace

prm::CqeWords* CompletionQueue::ready(std::uint32_t counter) const {
  prm::CqeWords* entry = cqe(counter);
  const std::uint8_t op_own = __atomic_load_n(&entry->op_own, __ATOMIC_RELAXED);
  const bool wrapped = (counter & count) != 0;
  if (op_own >> 4 == static_cast<unsigned>(prm::CqeOpcode::invalid) ||
      ((op_own & 1) != 0) != wrapped) {
    return nullptr;
  }
  return entry;
}

prm::CqeWords* CompletionQueue::take() {
  prm::CqeWords* entry = ready(consumer);
  if (entry == nullptr) return nullptr;
  ++consumer;
  fence_after_owner();
  return entry;
}

bool CompletionQueue::poll_was_empty() {
  if (!hints->active()) return false;
  if (empty_at != consumer) empty_polls = 0;
  empty_at = consumer;
  if (++empty_polls < patience.load(std::memory_order_relaxed)) return false;
  empty_polls = 0;
  return true;
}

ibv_wc_status status_of(prm::CqeSyndrome syndrome) {
  switch (syndrome) {
    case prm::CqeSyndrome::local_length:
      return IBV_WC_LOC_LEN_ERR;
    case prm::CqeSyndrome::local_qp_operation:
      return IBV_WC_LOC_QP_OP_ERR;
    case prm::CqeSyndrome::local_protection:
      return IBV_WC_LOC_PROT_ERR;
    case prm::CqeSyndrome::flushed:
      return IBV_WC_WR_FLUSH_ERR;
    case prm::CqeSyndrome::memory_window_bind:
      return IBV_WC_MW_BIND_ERR;
    case prm::CqeSyndrome::bad_response:
      return IBV_WC_BAD_RESP_ERR;
    case prm::CqeSyndrome::local_access:
      return IBV_WC_LOC_ACCESS_ERR;
    case prm::CqeSyndrome::remote_invalid_request:
      return IBV_WC_REM_INV_REQ_ERR;
    case prm::CqeSyndrome::remote_access:
      return IBV_WC_REM_ACCESS_ERR;
    case prm::CqeSyndrome::remote_operation:
      return IBV_WC_REM_OP_ERR;
    case prm::CqeSyndrome::transport_retry_exceeded:
      return IBV_WC_RETRY_EXC_ERR;
    case prm::CqeSyndrome::rnr_retry_exceeded:
      return IBV_WC_RNR_RETRY_EXC_ERR;
    case prm::CqeSyndrome::remote_aborted:
      return IBV_WC_REM_ABORT_ERR;
  }
  return IBV_WC_GENERAL_ERR;
}

ibv_wc_opcode opcode_of(const prm::CqeWords& cqe, std::uint32_t wc_opcode) {
  switch (opcode_field(cqe)) {
    case prm::CqeOpcode::responder_write_imm:
      return IBV_WC_RECV_RDMA_WITH_IMM;
    case prm::CqeOpcode::responder_send:
    case prm::CqeOpcode::responder_send_imm:
    case prm::CqeOpcode::responder_send_invalidate:
      return IBV_WC_RECV;
    default:
      break;
  }
  switch (static_cast<prm::WqeOpcode>(cqe.sop_qpn >> 24)) {
    case prm::WqeOpcode::rdma_write:
    case prm::WqeOpcode::rdma_write_imm:
      return IBV_WC_RDMA_WRITE;
    case prm::WqeOpcode::rdma_read:
      return IBV_WC_RDMA_READ;
    case prm::WqeOpcode::atomic_cmp_swap:
      return IBV_WC_COMP_SWAP;
    case prm::WqeOpcode::atomic_fetch_add:
      return IBV_WC_FETCH_ADD;
    case prm::WqeOpcode::umr:
    case prm::WqeOpcode::nop:
      return static_cast<ibv_wc_opcode>(wc_opcode);
    default:
      return IBV_WC_SEND;
  }
}

unsigned flags_of(const prm::CqeWords& cqe) {
  unsigned flags = 0;
  switch (opcode_field(cqe)) {
    case prm::CqeOpcode::requester: {
      const auto opcode = static_cast<prm::WqeOpcode>(cqe.sop_qpn >> 24);
      const bool imm =
          opcode == prm::WqeOpcode::send_imm || opcode == prm::WqeOpcode::rdma_write_imm;
      return imm ? static_cast<unsigned>(IBV_WC_WITH_IMM) : 0U;
    }
    case prm::CqeOpcode::responder_write_imm:
    case prm::CqeOpcode::responder_send_imm:
      flags = IBV_WC_WITH_IMM;
      break;
    case prm::CqeOpcode::responder_send_invalidate:
      flags = IBV_WC_WITH_INV;
      break;
    default:
      break;
  }
  if ((cqe.flags_rqpn >> 28 & 3) != 0) flags |= IBV_WC_GRH;
  return flags;
}

bool complete(CompletionQueue& cq, const prm::CqeWords& cqe, Completion& completion) {
  completion = Completion{};
  Resource* resource = cq.resources->find(cqe.srqn_user_index & 0xffffff);
  if (resource == nullptr) return false;
  const prm::CqeOpcode opcode = opcode_field(cqe);
  if (is_error(opcode))
    completion.status = status_of(static_cast<prm::CqeSyndrome>(cqe.syndrome()));
  switch (opcode) {
    case prm::CqeOpcode::requester:
    case prm::CqeOpcode::requester_error: {
      if (resource->kind != Resource::Kind::queue_pair) return false;
      QueuePair* qp = QueuePair::of(resource);
      if (qp->sq.block_count == 0) return false;
      cq.raw_last_sender = cqe.srqn_user_index.raw;
      cq.last_sender = qp;
      complete_send(*qp, cqe, completion);
      return true;
    }
    case prm::CqeOpcode::responder_write_imm:
    case prm::CqeOpcode::responder_send:
    case prm::CqeOpcode::responder_send_imm:
    case prm::CqeOpcode::responder_send_invalidate:
    case prm::CqeOpcode::responder_error:
      return complete_receive(*resource, cqe, completion);
    default:
      return false;
  }
}

int poll_held(CompletionQueue& cq, int entries, ibv_wc* wc) {
  int polled = 0;
  bool bad = false;
  bool yield = false;
  {
    const std::lock_guard guard(cq.lock, std::adopt_lock);
    while (polled < entries) {
      if (take_plain(cq, cq.consumer, wc[polled])) {
        ++cq.consumer;
        ++polled;
        continue;
      }
      const prm::CqeWords* cqe = cq.take();
      if (cqe == nullptr) break;
      Completion completion;
      if (!complete(cq, *cqe, completion)) {
        bad = true;
        break;
      }
      fill(wc[polled], *cqe, completion);
      ++polled;
    }
    if (polled != 0 || bad) {
      cq.release();
    } else {
      yield = cq.poll_was_empty();
    }
  }
  if (bad && polled == 0) return -EINVAL;
  if (yield) poll_politely(cq);
  return polled;
}

int req_notify_cq(ibv_cq* base, int solicited_only) {
  CompletionQueue& cq = *CompletionQueue::of(base);
  // The serial number is that of the last completion event; a repeated arm with the same number is
  // one arm.
  const std::uint32_t arm = (cq.arm_sn & 3) << prm::kCqArmSnShift |
                            (solicited_only != 0 ? prm::kCqArmSolicited : 0) |
                            (cq.consumer & 0xffffff);
  fence_before_record();
  store_record(&cq.record[prm::CqDoorbellRecord::arm_word], arm);
  fence_before_doorbell();
  const std::uint64_t doorbell = static_cast<std::uint64_t>(arm) << 32 | cq.cqn;
  store_doorbell(cq.uar->page() + prm::Uar::cq_arm, prm::Be64::swap(doorbell));
  flush_doorbell();
  cq.hints->cq_armed(cq.cqn);
  return 0;
}

void cq_event(ibv_cq* cq) {
  ++CompletionQueue::of(cq)->arm_sn;
}

void clean(CompletionQueue& cq, std::uint32_t user_index, SharedReceiveQueue* srq) {
  const std::lock_guard guard(cq.lock);
  cq.raw_last_sender = CompletionQueue::kNoSender;
  std::uint32_t producer = cq.consumer;
  while (producer - cq.consumer < cq.count && cq.ready(producer) != nullptr) ++producer;
  fence_after_owner();
  // Newest to oldest: what stays moves up over what goes, so that the consumer index alone tells.
  std::uint32_t dropped = 0;
  while (producer-- != cq.consumer) {
    prm::CqeWords* cqe = cq.cqe(producer);
    if ((cqe->srqn_user_index & 0xffffff) == user_index) {
      const bool receive = opcode_field(*cqe) != prm::CqeOpcode::requester &&
                           opcode_field(*cqe) != prm::CqeOpcode::requester_error;
      std::uint64_t ignored = 0;
      if (srq != nullptr && receive) srq->ring.complete(cqe->wqe_counter, ignored);
      ++dropped;
    } else if (dropped != 0) {
      prm::CqeWords* to = cq.cqe(producer + dropped);
      const std::uint8_t owner = to->op_own & 1;
      *to = *cqe;
      to->op_own = static_cast<std::uint8_t>((to->op_own & ~1) | owner);
    }
  }
  if (dropped != 0) {
    cq.consumer += dropped;
    fence_before_record();
    cq.release();
  }
}

}  // namespace softhca::provider
