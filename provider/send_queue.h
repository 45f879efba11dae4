// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "hw-model/prm/wqe.h"
#include "provider/hints.h"
#include "provider/queue_lock.h"
#include "provider/uar.h"

namespace softhca::provider {

/// What the provider remembers of a send WQE until it completes; at the index of its first basic
/// block. The first three members are those of an ibv_wc, so that a completion copies them.
struct alignas(32) SendSlot {
  std::uint64_t wr_id = 0;
  ibv_wc_status status = IBV_WC_SUCCESS;  ///< Stays so.
  ibv_wc_opcode wc_opcode = IBV_WC_SEND;
  std::uint32_t completed = 0;  ///< Work requests that are completed with this one, since reset.
  std::uint32_t special = 0;    ///< Not 0: its completion has more to tell than opcode and length.

  /// `umr_opcode`: which of the operations it is that are posted as WqeOpcode::umr.
  void set_operation(prm::WqeOpcode opcode, ibv_wc_opcode umr_opcode) {
    special = 0;
    switch (opcode) {
      case prm::WqeOpcode::rdma_write:
        wc_opcode = IBV_WC_RDMA_WRITE;
        break;
      case prm::WqeOpcode::rdma_read:
        wc_opcode = IBV_WC_RDMA_READ;
        break;
      case prm::WqeOpcode::send:
      case prm::WqeOpcode::send_invalidate:
        wc_opcode = IBV_WC_SEND;
        break;
      default:
        wc_opcode = umr_opcode;
        special = 1;
        break;
    }
  }
};
/// Bytes of a SendSlot with which an ibv_wc begins.
inline constexpr std::size_t kSlotCompletion = offsetof(SendSlot, completed);
static_assert(offsetof(SendSlot, wr_id) == offsetof(ibv_wc, wr_id) &&
              offsetof(SendSlot, status) == offsetof(ibv_wc, status) &&
              offsetof(SendSlot, wc_opcode) == offsetof(ibv_wc, opcode) &&
              kSlotCompletion == offsetof(ibv_wc, vendor_err));

/// The ring of a send queue, without the verbs around it: plain memory, so tests can run it alone.
struct SendQueue {
  std::uint8_t* start = nullptr;
  std::uint8_t* end = nullptr;
  std::uint32_t block_count = 0;  ///< Power of two; 0: no send queue.
  std::uint32_t block_mask = 0;   ///< block_count - 1.
  std::uint32_t max_post = 0;     ///< Work requests that fit at their largest.
  std::uint32_t max_sge = 0;
  std::uint32_t max_inline = 0;
  std::uint32_t qpn = 0;
  std::uint8_t signal_all = 0;  ///< CtrlWords::kCqUpdate when every WQE is signalled.

  std::unique_ptr<SendSlot[]> slots;
  std::uint32_t head = 0;              ///< Work requests handed to the device.
  std::uint32_t producer = 0;          ///< Basic blocks handed to the device.
  std::atomic<std::uint32_t> tail{0};  ///< Work requests completed; written by who polls the CQ.
  std::uint8_t next_fence = 0;         ///< Fence bits that the next WQE must carry.

  /// For post_plain.cpp, worked out by open_plain_path(). `head` up to which plain requests have
  /// room, and need no look at anything else: at `head` itself, none may be posted that way.
  std::uint32_t plain_until = 0;
  std::uint64_t raw_write = 0;       ///< raw_first() of a gathered WRITE.
  std::uint32_t raw_signalling = 0;  ///< signal_all, where CtrlWords has it.
  DoorbellHints* hint_map = nullptr;
  HintBitmap::Place hint;
  bool plain_type = false;  ///< The QP type needs no segment of its own.

  prm::Be32* record = nullptr;  ///< Send word of the doorbell record.
  Uar* uar = nullptr;
  Hints* hints = nullptr;
  QueueLock lock;

  void reset() {
    head = 0;
    producer = 0;
    tail.store(0, std::memory_order_relaxed);
    next_fence = 0;
    close_plain_path();
  }
  /// First half of CtrlWords, as stored, but for the index of the WQE.
  static constexpr std::uint64_t raw_first(std::uint32_t qpn, prm::WqeOpcode opcode,
                                           std::uint32_t units) {
    return prm::Be64::swap(static_cast<std::uint64_t>(opcode) << 32 | qpn << 8 | units);
  }
  static constexpr std::uint32_t kWriteUnits = 3;  ///< Units of a WRITE of one piece.
  /// Lets plain requests be posted without a look at the queue's state for as long as they are
  /// known to fit; closed, the next one looks. The caller holds the queue.
  void open_plain_path();
  void close_plain_path() { plain_until = head; }
  /// True if `pending` work requests beyond `head` leave no room for one more.
  bool full(std::uint32_t pending) const {
    return head + pending - tail.load(std::memory_order_acquire) >= max_post;
  }
  std::uint8_t* block(std::uint32_t counter) const {
    return start + static_cast<std::size_t>(counter & block_mask) * prm::kWqeBasicBlock;
  }
  SendSlot& slot(std::uint32_t counter) const { return slots[counter & block_mask]; }

  /// Tells the device about `count` new work requests, of which the last has its control segment at
  /// `ctrl` and `units` 16-byte units. `copy` asks for a BlueFlame copy where the page can.
  void ring(std::uint32_t count, const prm::CtrlWords* ctrl, std::uint32_t units, bool copy);
  /// The part of ring() that is for a device without hints: its register, after the record.
  void ring_register(const prm::CtrlWords* ctrl, std::uint32_t units, bool copy);
};

/// Writes one WQE into the ring, wrapping at its end. No allocation, no lock: the caller holds the
/// queue.
class WqeWriter {
 public:
  explicit WqeWriter(const SendQueue& queue) : queue_(&queue) {}
  WqeWriter() = default;
  void attach(const SendQueue& queue) { queue_ = &queue; }

  /// Begins at basic block `counter`; reserves the control segment.
  prm::CtrlWords* begin(std::uint32_t counter) {
    counter_ = counter;
    std::uint8_t* block = queue_->block(counter);
    ctrl_ = reinterpret_cast<prm::CtrlWords*>(block);
    cursor_ = block + sizeof(prm::CtrlWords);
    units_ = 1;
    return ctrl_;
  }
  /// Reserves the next segment. One that is longer than 16 bytes never wraps inside itself: the
  /// layouts put it in the first basic block or at the start of one.
  template <typename Segment>
  Segment* segment() {
    static_assert(sizeof(Segment) % prm::kWqeUnit == 0);
    if (cursor_ == queue_->end) cursor_ = queue_->start;
    auto* at = reinterpret_cast<Segment*>(cursor_);
    cursor_ += sizeof(Segment);
    units_ += sizeof(Segment) / prm::kWqeUnit;
    return at;
  }
  void remote_address(std::uint64_t address, std::uint32_t rkey) {
    auto* words = segment<prm::RemoteAddressWords>();
    words->virtual_address = address;
    words->rkey = rkey;
    words->reserved.raw = 0;
  }
  void atomic(std::uint64_t swap_add, std::uint64_t compare) {
    auto* words = segment<prm::AtomicWords>();
    words->swap_add = swap_add;
    words->compare = compare;
  }
  /// Gather entry; an empty one is left out, since zero means 2^31 to the device.
  void data(std::uint64_t address, std::uint32_t length, std::uint32_t lkey) {
    if (length == 0) return;
    auto* words = segment<prm::DataWords>();
    words->byte_count = length;
    words->lkey = lkey;
    words->address = address;
  }

  /// Inline data: begin once, append pieces, finish. append() is false beyond the queue's limit.
  void begin_inline() {
    if (cursor_ == queue_->end) cursor_ = queue_->start;
    inline_header_ = reinterpret_cast<prm::Be32*>(cursor_);
    cursor_ += prm::InlineSegment::header_size;
    inline_length_ = 0;
  }
  bool append_inline(const void* data, std::size_t length) {
    if (length > queue_->max_inline - inline_length_) return false;
    const auto* from = static_cast<const std::uint8_t*>(data);
    inline_length_ += static_cast<std::uint32_t>(length);
    const auto room = static_cast<std::size_t>(queue_->end - cursor_);
    if (length > room) {
      std::memcpy(cursor_, from, room);
      from += room;
      length -= room;
      cursor_ = queue_->start;
    }
    if (length != 0) std::memcpy(cursor_, from, length);
    cursor_ += length;
    return true;
  }
  /// Pads to whole units; a segment without a byte is taken back.
  void finish_inline() {
    if (inline_length_ == 0) {
      cursor_ = reinterpret_cast<std::uint8_t*>(inline_header_);
      return;
    }
    *inline_header_ = prm::InlineSegment::kInlineFlag | inline_length_;
    const auto added = static_cast<std::uint32_t>(prm::InlineSegment::units(inline_length_));
    units_ += added;
    const std::size_t offset =
        static_cast<std::size_t>(reinterpret_cast<std::uint8_t*>(inline_header_) - queue_->start) +
        added * prm::kWqeUnit;
    const auto size = static_cast<std::size_t>(queue_->end - queue_->start);
    cursor_ = queue_->start + (offset > size ? offset - size : offset);
  }

  /// Fills in opcode, index and length. The WQE is complete after this.
  void finish(prm::WqeOpcode opcode) {
    ctrl_->opmod_index_opcode = (counter_ & 0xffff) << 8 | static_cast<std::uint32_t>(opcode);
    ctrl_->qpn_ds = queue_->qpn << 8 | units_;
  }
  prm::CtrlWords* ctrl() const { return ctrl_; }
  std::uint32_t units() const { return units_; }
  std::uint32_t blocks() const {
    constexpr std::uint32_t kUnitsPerBlock = prm::kWqeBasicBlock / prm::kWqeUnit;
    return (units_ + kUnitsPerBlock - 1) / kUnitsPerBlock;
  }

 private:
  const SendQueue* queue_ = nullptr;
  prm::CtrlWords* ctrl_ = nullptr;
  std::uint8_t* cursor_ = nullptr;
  prm::Be32* inline_header_ = nullptr;
  std::uint32_t counter_ = 0;
  std::uint32_t units_ = 0;
  std::uint32_t inline_length_ = 0;
};

/// Longest memory window.
inline constexpr std::uint64_t kMaxBindLength = 1ULL << 31;
/// UMR WQE that binds a memory window (`info` with a length) or invalidates one (`info` without):
/// segments after the control segment. `type` 2 windows belong to `qpn`.
void write_bind(WqeWriter& writer, ibv_mw_type type, std::uint32_t new_rkey,
                const ibv_mw_bind_info& info, std::uint32_t qpn);

}  // namespace softhca::provider
