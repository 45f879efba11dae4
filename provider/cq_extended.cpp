// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <cerrno>

#include "provider/cq.h"
#include "provider/qp.h"

namespace softhca::provider {
namespace {

const prm::CqeWords& current(ibv_cq_ex* cq) {
  return *CompletionQueue::of(cq)->current;
}

/// Takes one CQE into the CQ; 0, ENOENT when there is none, EINVAL when it cannot be resolved.
int advance(CompletionQueue& cq) {
  cq.current = cq.take();
  if (cq.current == nullptr) return ENOENT;
  if (!complete(cq, *cq.current, cq.completion)) return EINVAL;
  cq.verbs.cq_ex.status = cq.completion.status;
  cq.verbs.cq_ex.wr_id = cq.completion.wr_id;
  return 0;
}

int start_poll(ibv_cq_ex* base, ibv_poll_cq_attr* attr) {
  if (attr->comp_mask != 0) return EINVAL;
  CompletionQueue& cq = *CompletionQueue::of(base);
  cq.lock.lock();
  const int error = advance(cq);
  if (error == 0) return 0;
  bool yield = false;
  if (error == ENOENT) {
    yield = cq.poll_was_empty();
  } else {
    cq.release();
  }
  cq.lock.unlock();
  if (yield) poll_politely(cq);
  return error;
}

int next_poll(ibv_cq_ex* base) {
  return advance(*CompletionQueue::of(base));
}

void end_poll(ibv_cq_ex* base) {
  CompletionQueue& cq = *CompletionQueue::of(base);
  cq.release();
  cq.lock.unlock();
}

ibv_wc_opcode read_opcode(ibv_cq_ex* cq) {
  return opcode_of(current(cq), CompletionQueue::of(cq)->completion.wc_opcode);
}
std::uint32_t read_vendor_err(ibv_cq_ex* cq) {
  return current(cq).vendor_syndrome();
}
std::uint32_t read_byte_len(ibv_cq_ex* cq) {
  return current(cq).byte_count;
}
/// Immediate data, or the invalidated R_Key in the processor's order.
__be32 read_imm_data(ibv_cq_ex* cq) {
  const prm::CqeWords& cqe = current(cq);
  const bool invalidated =
      static_cast<prm::CqeOpcode>(cqe.op_own >> 4) == prm::CqeOpcode::responder_send_invalidate;
  return invalidated ? cqe.immediate.get() : cqe.immediate.raw;
}
std::uint32_t read_qp_num(ibv_cq_ex* cq) {
  return current(cq).sop_qpn & 0xffffff;
}
std::uint32_t read_src_qp(ibv_cq_ex* cq) {
  return current(cq).flags_rqpn & 0xffffff;
}
unsigned read_wc_flags(ibv_cq_ex* cq) {
  return flags_of(current(cq));
}
std::uint32_t read_slid(ibv_cq_ex* cq) {
  return current(cq).source_lid;
}
std::uint8_t read_sl(ibv_cq_ex* cq) {
  return current(cq).flags_rqpn >> 24 & 0xf;
}
std::uint8_t read_dlid_path_bits(ibv_cq_ex* cq) {
  return current(cq).ml_path & 0x7f;
}
std::uint64_t read_completion_ts(ibv_cq_ex* cq) {
  return current(cq).timestamp;
}

}  // namespace

void install_extended_polling(CompletionQueue& cq, std::uint64_t wc_flags) {
  ibv_cq_ex& ex = cq.verbs.cq_ex;
  ex.start_poll = start_poll;
  ex.next_poll = next_poll;
  ex.end_poll = end_poll;
  ex.read_opcode = read_opcode;
  ex.read_vendor_err = read_vendor_err;
  ex.read_wc_flags = read_wc_flags;
  if ((wc_flags & IBV_WC_EX_WITH_BYTE_LEN) != 0) ex.read_byte_len = read_byte_len;
  if ((wc_flags & IBV_WC_EX_WITH_IMM) != 0) ex.read_imm_data = read_imm_data;
  if ((wc_flags & IBV_WC_EX_WITH_QP_NUM) != 0) ex.read_qp_num = read_qp_num;
  if ((wc_flags & IBV_WC_EX_WITH_SRC_QP) != 0) ex.read_src_qp = read_src_qp;
  if ((wc_flags & IBV_WC_EX_WITH_SLID) != 0) ex.read_slid = read_slid;
  if ((wc_flags & IBV_WC_EX_WITH_SL) != 0) ex.read_sl = read_sl;
  if ((wc_flags & IBV_WC_EX_WITH_DLID_PATH_BITS) != 0) ex.read_dlid_path_bits = read_dlid_path_bits;
  if ((wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP) != 0)
    ex.read_completion_ts = read_completion_ts;
}

}  // namespace softhca::provider
