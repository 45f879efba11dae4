// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstring>

#include "provider/cq.h"
#include "provider/ordering.h"
#include "provider/qp.h"

namespace softhca::provider {

/// Takes the next CQE if it is there and plain: the success of a send, on the queue pair whose
/// sends completed last, with nothing to tell but opcode and length. `consumer` is the CQ's; it is
/// up to the caller to move it on. Any other CQE is left untouched.
[[gnu::always_inline]] inline bool take_plain(CompletionQueue& cq, std::uint32_t consumer,
                                              ibv_wc& wc) {
  const prm::CqeWords* cqe = cq.cqe(consumer);
  // Opcode `requester` is 0, as are format and the solicited bit: what is left is the owner bit.
  const std::uint8_t owner = (consumer & cq.count) != 0 ? 1 : 0;
  if (__atomic_load_n(&cqe->op_own, __ATOMIC_RELAXED) != owner) return false;
  fence_after_owner();
  if (cqe->srqn_user_index.raw != cq.raw_last_sender) return false;
  SendQueue& sq = cq.last_sender->sq;
  const SendSlot& slot = sq.slots[cqe->wqe_counter & sq.block_mask];
  if (slot.special != 0) return false;
  const std::uint32_t completed = slot.completed;
  std::memcpy(&wc, &slot, kSlotCompletion);
  wc.vendor_err = 0;
  wc.byte_len = cqe->byte_count;
  wc.qp_num = sq.qpn;
  wc.wc_flags = 0;
  sq.tail.store(completed, std::memory_order_release);
  return true;
}

}  // namespace softhca::provider
