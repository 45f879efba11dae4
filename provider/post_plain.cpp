// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <cstring>

#include "provider/ordering.h"
#include "provider/qp.h"

/// ibv_post_send(), and the short way through it that most requests take. A plain request is a
/// single RDMA WRITE, RDMA READ or SEND of one piece of registered memory that asks for nothing but
/// a completion, on a queue that is known to have room and nothing pending
/// (SendQueue::plain_until). It is one basic block of a fixed form. Whatever is not plain is left
/// untouched to post_held().
namespace softhca::provider {
namespace {

/// A request of one piece, as it is in memory: number of pieces, then opcode.
constexpr std::uint64_t one_piece(ibv_wr_opcode opcode) {
  return static_cast<std::uint64_t>(opcode) << 32 | 1;
}
static_assert(offsetof(ibv_send_wr, opcode) == offsetof(ibv_send_wr, num_sge) + 4);
static_assert(offsetof(ibv_sge, lkey) == offsetof(ibv_sge, length) + 4);

/// IBV_SEND_SIGNALED moves by this to CtrlWords::kCqUpdate in the word that ends with fm_ce_se.
constexpr unsigned kSignalledShift = 26;
static_assert(IBV_SEND_SIGNALED << kSignalledShift == prm::CtrlWords::kCqUpdate << 24);

/// Basic blocks are larger than slots by this: one offset leads to both.
constexpr std::size_t kBlocksPerSlot = prm::kWqeBasicBlock / sizeof(SendSlot);
static_assert(sizeof(SendSlot) * kBlocksPerSlot == prm::kWqeBasicBlock);

template <typename To>
void store(To* at, std::uint64_t value) {
  std::memcpy(at, &value, sizeof(value));
}
template <typename From>
std::uint64_t load(const From* at) {
  std::uint64_t value = 0;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

constexpr ibv_wc_opcode completion_of(prm::WqeOpcode opcode) {
  if (opcode == prm::WqeOpcode::rdma_write) return IBV_WC_RDMA_WRITE;
  return opcode == prm::WqeOpcode::rdma_read ? IBV_WC_RDMA_READ : IBV_WC_SEND;
}

[[gnu::cold, gnu::noinline]] int wake(const SendQueue& sq) {
  sq.hints->wake_if_asleep();
  return 0;
}

[[gnu::noinline]] int ring_register(SendQueue& sq, const prm::CtrlWords* ctrl) {
  sq.ring_register(ctrl, 0, false);
  sq.lock.unlock();
  return 0;
}

[[gnu::noinline]] int lock_and_post(ibv_qp* base, ibv_send_wr* wr, ibv_send_wr** bad) {
  QueuePair& qp = *QueuePair::of(base);
  qp.sq.lock.lock();
  return post_held(qp, wr, bad);
}

/// Posts a plain request. Calls nothing but at its end, so that it needs no stack.
template <prm::WqeOpcode kOpcode, bool kLocked>
[[gnu::always_inline]] inline int post_plain(QueuePair& qp, ibv_send_wr* wr, ibv_send_wr** bad) {
  constexpr bool kRemote = kOpcode != prm::WqeOpcode::send;
  constexpr std::uint32_t kWriteUnits = SendQueue::kWriteUnits;
  constexpr std::uint32_t kUnits = kRemote ? kWriteUnits : kWriteUnits - 1;
  SendQueue& sq = qp.sq;
  const ibv_sge& sge = *wr->sg_list;
  const std::uint32_t send_flags = wr->send_flags;
  const std::uint64_t piece = load(&sge.length);
  // An empty piece is none at all.
  if (static_cast<std::uint32_t>(piece) == 0) return lock_and_post(&qp.verbs.qp, wr, bad);
  if (kLocked && !sq.lock.try_take()) return lock_and_post(&qp.verbs.qp, wr, bad);
  std::uint32_t head = sq.head;
  if (head == sq.plain_until) return post_held(qp, wr, bad);

  const std::uint32_t producer = sq.producer;
  const std::uint64_t counter = producer & 0xffff;
  const std::size_t offset = (producer & sq.block_mask) * sizeof(SendSlot);
  auto* ctrl = reinterpret_cast<prm::CtrlWords*>(sq.start + offset * kBlocksPerSlot);
  auto& slot = *reinterpret_cast<SendSlot*>(reinterpret_cast<char*>(sq.slots.get()) + offset);
  // As two words of eight bytes, the first from that of a WRITE.
  constexpr std::uint64_t kDifference =
      SendQueue::raw_first(0, kOpcode, kUnits) ^
      SendQueue::raw_first(0, prm::WqeOpcode::rdma_write, kWriteUnits);
  store(ctrl, (prm::Be64::swap(counter << 40) | sq.raw_write) ^ kDifference);
  store(&ctrl->signature, send_flags << kSignalledShift | sq.raw_signalling);
  auto* data = reinterpret_cast<prm::DataWords*>(ctrl + 1);
  if constexpr (kRemote) {
    auto* remote = reinterpret_cast<prm::RemoteAddressWords*>(ctrl + 1);
    remote->virtual_address = wr->wr.rdma.remote_addr;
    store(&remote->rkey, prm::Be32::swap(wr->wr.rdma.rkey));
    ++data;
  }
  // Length and key change their byte order as one word, and their places back.
  const std::uint64_t swapped = __builtin_bswap64(piece);
  store(&data->byte_count, swapped << 32 | swapped >> 32);
  data->address = sge.addr;

  ++head;
  slot.wr_id = wr->wr_id;
  slot.wc_opcode = completion_of(kOpcode);
  store(&slot.completed, head);  // And nothing special.
  sq.head = head;
  ++sq.producer;
  fence_before_record();
  store_record(sq.record, sq.producer & 0xffff);
  DoorbellHints* const hints = sq.hint_map;
  if (hints == nullptr) return ring_register(sq, ctrl);
  hints->sq.mark(sq.hint);
  if (kLocked) sq.lock.give();
  return hints->engine_sleeps() ? wake(sq) : 0;
}

/// Of its own, so that the most usual way needs neither stack nor jump.
template <prm::WqeOpcode kOpcode, bool kLocked>
[[gnu::noinline]] int post(QueuePair& qp, ibv_send_wr* wr, ibv_send_wr** bad) {
  return post_plain<kOpcode, kLocked>(qp, wr, bad);
}
template <prm::WqeOpcode kOpcode>
int post(QueuePair& qp, ibv_send_wr* wr, ibv_send_wr** bad) {
  return qp.sq.lock.needed() ? post<kOpcode, true>(qp, wr, bad) : post<kOpcode, false>(qp, wr, bad);
}

}  // namespace

int post_send(ibv_qp* base, ibv_send_wr* wr, ibv_send_wr** bad) {
  if (wr == nullptr || wr->next != nullptr ||
      (wr->send_flags & ~unsigned{IBV_SEND_SIGNALED}) != 0) {
    return lock_and_post(base, wr, bad);
  }
  QueuePair& qp = *QueuePair::of(base);
  const std::uint64_t pieces = load(&wr->num_sge);
  if (pieces == one_piece(IBV_WR_RDMA_WRITE)) [[likely]] {
    if (qp.sq.lock.needed()) [[likely]]
      return post_plain<prm::WqeOpcode::rdma_write, true>(qp, wr, bad);
    return post<prm::WqeOpcode::rdma_write, false>(qp, wr, bad);
  }
  if (pieces == one_piece(IBV_WR_SEND)) return post<prm::WqeOpcode::send>(qp, wr, bad);
  if (pieces == one_piece(IBV_WR_RDMA_READ) && base->qp_type == IBV_QPT_RC)
    return post<prm::WqeOpcode::rdma_read>(qp, wr, bad);
  return lock_and_post(base, wr, bad);
}

}  // namespace softhca::provider
