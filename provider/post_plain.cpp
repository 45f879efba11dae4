// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <cstring>

#include "provider/ordering.h"
#include "provider/qp.h"

/// ibv_post_send(), and the short way through it that most requests take. A plain request is a
/// single RDMA WRITE, RDMA READ or SEND of one piece of memory that asks for nothing but a
/// completion, on a queue that is known to have room and nothing pending (SendQueue::plain_until):
/// gathered, or inline where that fits the first basic block. It is one basic block of a fixed
/// form. Whatever is not plain is left untouched to post_held().
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
void store_word(To* at, std::uint64_t value) {
  std::memcpy(at, &value, sizeof(value));
}
template <typename From>
std::uint64_t load_word(const From* at) {
  std::uint64_t value = 0;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

/// Two pieces of one size, which meet or overlap.
template <typename Piece>
void copy_ends(char* to, const char* from, std::uint32_t length) {
  Piece first;
  Piece last;
  std::memcpy(&first, from, sizeof(Piece));
  std::memcpy(&last, from + length - sizeof(Piece), sizeof(Piece));
  std::memcpy(to, &first, sizeof(Piece));
  std::memcpy(to + length - sizeof(Piece), &last, sizeof(Piece));
}

struct Sixteen {
  std::uint64_t words[2];
};

/// Up to 60 bytes, without a call.
[[gnu::always_inline]] inline void copy_short(char* to, const char* from, std::uint32_t length) {
  if (length >= 8) {
    for (; length > 32; length -= 16, to += 16, from += 16) copy_ends<Sixteen>(to, from, 16);
    if (length >= 16) return copy_ends<Sixteen>(to, from, length);
    return copy_ends<std::uint64_t>(to, from, length);
  }
  if (length >= 4) return copy_ends<std::uint32_t>(to, from, length);
  for (std::uint32_t i = 0; i < length; ++i) to[i] = from[i];
}

constexpr ibv_wc_opcode completion_of(prm::WqeOpcode opcode) {
  if (opcode == prm::WqeOpcode::rdma_write) return IBV_WC_RDMA_WRITE;
  return opcode == prm::WqeOpcode::rdma_read ? IBV_WC_RDMA_READ : IBV_WC_SEND;
}

[[gnu::cold, gnu::noinline]] int wake_engine(const SendQueue& sq) {
  sq.hints->wake_if_asleep();
  return 0;
}

[[gnu::noinline]] int register_and_unlock(SendQueue& sq, const prm::CtrlWords* ctrl, unsigned units,
                                          bool copy) {
  sq.ring_register(ctrl, units, copy);
  sq.lock.unlock();
  return 0;
}

[[gnu::noinline]] int lock_and_post(ibv_qp* base, ibv_send_wr* wr, ibv_send_wr** bad) {
  QueuePair& qp = *QueuePair::of(base);
  qp.sq.lock.lock();
  return post_held(qp, wr, bad);
}

/// How the data gets to the device.
enum class Data : std::uint8_t { gathered, inlined };

/// Gather entry.
void write_gathered(void* at, std::uint64_t length_lkey, std::uint64_t address) {
  auto* data = static_cast<prm::DataWords*>(at);
  // Length and key change their byte order as one word, and their places back.
  const std::uint64_t swapped = __builtin_bswap64(length_lkey);
  store_word(&data->byte_count, swapped << 32 | swapped >> 32);
  data->address = address;
}

/// Inline segment of at most 60 bytes.
[[gnu::always_inline]] inline void write_inline(void* at, std::uint32_t length,
                                                std::uint64_t address) {
  *static_cast<prm::Be32*>(at) = prm::InlineSegment::kInlineFlag | length;
  copy_short(static_cast<char*>(at) + prm::InlineSegment::header_size,
             reinterpret_cast<const char*>(static_cast<std::uintptr_t>(address)), length);
}

/// Control segment in two words of eight bytes, the first of which is a gathered WRITE's but for
/// what is said here; and where the data goes at the other end.
template <prm::WqeOpcode kOpcode>
[[gnu::always_inline]] inline void write_ctrl(const SendQueue& sq, prm::CtrlWords* ctrl,
                                              std::uint64_t counter, std::uint32_t units,
                                              std::uint32_t signalled, const ibv_send_wr& wr) {
  const std::uint64_t difference =
      SendQueue::raw_first(0, kOpcode, units) ^
      SendQueue::raw_first(0, prm::WqeOpcode::rdma_write, SendQueue::kWriteUnits);
  store_word(ctrl, (prm::Be64::swap(counter << 40) | sq.raw_write) ^ difference);
  store_word(&ctrl->signature, signalled << kSignalledShift | sq.raw_signalling);
  if constexpr (kOpcode != prm::WqeOpcode::send) {
    auto* remote = reinterpret_cast<prm::RemoteAddressWords*>(ctrl + 1);
    remote->virtual_address = wr.wr.rdma.remote_addr;
    store_word(&remote->rkey, prm::Be32::swap(wr.wr.rdma.rkey));
  }
}

template <prm::WqeOpcode kOpcode>
[[gnu::always_inline]] inline void remember(SendSlot& slot, std::uint64_t wr_id,
                                            std::uint32_t completed) {
  static_assert(offsetof(SendSlot, special) == offsetof(SendSlot, completed) + 4);
  slot.wr_id = wr_id;
  slot.wc_opcode = completion_of(kOpcode);
  store_word(&slot.completed, completed);  // And nothing special.
}

/// Posts a plain request. Calls nothing but at its end, so that it needs no stack.
template <prm::WqeOpcode kOpcode, Data kData, bool kLocked>
[[gnu::always_inline]] inline int post_plain(QueuePair& qp, ibv_send_wr* wr, ibv_send_wr** bad) {
  constexpr bool kRemote = kOpcode != prm::WqeOpcode::send;
  constexpr std::size_t kBeforeData =
      sizeof(prm::CtrlWords) + (kRemote ? sizeof(prm::RemoteAddressWords) : 0);
  constexpr std::size_t kInlineRoom =
      prm::kWqeBasicBlock - kBeforeData - prm::InlineSegment::header_size;
  SendQueue& sq = qp.sq;
  const ibv_sge& sge = *wr->sg_list;
  const std::uint32_t send_flags = wr->send_flags;
  const std::uint64_t piece = load_word(&sge.length);
  const auto length = static_cast<std::uint32_t>(piece);
  // An empty piece is none at all.
  if (length == 0) return lock_and_post(&qp.verbs.qp, wr, bad);
  if (kData == Data::inlined && (length > kInlineRoom || length > sq.max_inline))
    return lock_and_post(&qp.verbs.qp, wr, bad);
  if (kLocked && !sq.lock.try_take()) return lock_and_post(&qp.verbs.qp, wr, bad);
  std::uint32_t head = sq.head;
  if (head == sq.plain_until) return post_held(qp, wr, bad);

  const std::uint32_t producer = sq.producer;
  const std::uint64_t counter = producer & 0xffff;
  const std::size_t offset = (producer & sq.block_mask) * sizeof(SendSlot);
  auto* ctrl = reinterpret_cast<prm::CtrlWords*>(sq.start + offset * kBlocksPerSlot);
  auto& slot = *reinterpret_cast<SendSlot*>(reinterpret_cast<char*>(sq.slots.get()) + offset);
  const std::uint32_t units =
      kBeforeData / prm::kWqeUnit +
      (kData == Data::inlined ? static_cast<std::uint32_t>(prm::InlineSegment::units(length)) : 1);
  const std::uint32_t signalled =
      kData == Data::inlined ? send_flags & IBV_SEND_SIGNALED : send_flags;
  write_ctrl<kOpcode>(sq, ctrl, counter, units, signalled, *wr);
  void* const data = reinterpret_cast<std::uint8_t*>(ctrl) + kBeforeData;
  if constexpr (kData == Data::inlined) {
    write_inline(data, length, sge.addr);
  } else {
    write_gathered(data, piece, sge.addr);
  }

  remember<kOpcode>(slot, wr->wr_id, ++head);
  sq.head = head;
  ++sq.producer;
  fence_before_record();
  store_record(sq.record, sq.producer & 0xffff);
  DoorbellHints* const hints = sq.hint_map;
  if (hints == nullptr) return register_and_unlock(sq, ctrl, units, kData == Data::inlined);
  hints->ring_sq(sq.hint);
  if (kLocked) sq.lock.give();
  return hints->engine_sleeps() ? wake_engine(sq) : 0;
}

/// Of its own, so that the most usual way needs neither stack nor jump.
template <prm::WqeOpcode kOpcode, Data kData, bool kLocked>
[[gnu::noinline]] int post(QueuePair& qp, ibv_send_wr* wr, ibv_send_wr** bad) {
  return post_plain<kOpcode, kData, kLocked>(qp, wr, bad);
}
template <prm::WqeOpcode kOpcode, Data kData>
int post(QueuePair& qp, ibv_send_wr* wr, ibv_send_wr** bad) {
  return qp.sq.lock.needed() ? post<kOpcode, kData, true>(qp, wr, bad)
                             : post<kOpcode, kData, false>(qp, wr, bad);
}

/// With more flags than IBV_SEND_SIGNALED.
[[gnu::noinline]] int post_flagged(QueuePair& qp, ibv_send_wr* wr, ibv_send_wr** bad) {
  using enum prm::WqeOpcode;
  if ((wr->send_flags & ~unsigned{IBV_SEND_SIGNALED | IBV_SEND_INLINE}) == 0) {
    const std::uint64_t pieces = load_word(&wr->num_sge);
    if (pieces == one_piece(IBV_WR_RDMA_WRITE)) return post<rdma_write, Data::inlined>(qp, wr, bad);
    if (pieces == one_piece(IBV_WR_SEND)) return post<send, Data::inlined>(qp, wr, bad);
  }
  return lock_and_post(&qp.verbs.qp, wr, bad);
}

}  // namespace

int post_send(ibv_qp* base, ibv_send_wr* wr, ibv_send_wr** bad) {
  using enum prm::WqeOpcode;
  QueuePair& qp = *QueuePair::of(base);
  if (wr == nullptr || wr->next != nullptr) return lock_and_post(base, wr, bad);
  if ((wr->send_flags & ~unsigned{IBV_SEND_SIGNALED}) != 0) return post_flagged(qp, wr, bad);
  const std::uint64_t pieces = load_word(&wr->num_sge);
  if (pieces == one_piece(IBV_WR_RDMA_WRITE)) [[likely]] {
    if (qp.sq.lock.needed()) [[likely]]
      return post_plain<rdma_write, Data::gathered, true>(qp, wr, bad);
    return post<rdma_write, Data::gathered, false>(qp, wr, bad);
  }
  if (pieces == one_piece(IBV_WR_SEND)) return post<send, Data::gathered>(qp, wr, bad);
  if (pieces == one_piece(IBV_WR_RDMA_READ) && base->qp_type == IBV_QPT_RC)
    return post<rdma_read, Data::gathered>(qp, wr, bad);
  return lock_and_post(base, wr, bad);
}

}  // namespace softhca::provider
