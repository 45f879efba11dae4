// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "hw-model/prm/cqe.h"
#include "hw-model/prm/uar.h"
#include "hw-model/prm/wqe.h"
#include "provider/address_handle.h"
#include "provider/cq.h"
#include "provider/qp.h"

namespace softhca::provider {

/// 64-byte aligned zeroed memory.
class AlignedMemory {
 public:
  explicit AlignedMemory(std::size_t size) : words_(size / sizeof(Block)) {}
  std::uint8_t* data() { return reinterpret_cast<std::uint8_t*>(words_.data()); }

 private:
  struct alignas(64) Block {
    std::uint8_t bytes[64] = {};
  };
  std::vector<Block> words_;
};

/// A queue pair in state RTS whose rings, doorbell record and UAR page are plain memory.
class PlainQueuePair {
 public:
  explicit PlainQueuePair(ibv_qp_type type, std::uint32_t blocks = 16,
                          std::uint32_t blue_flame_half = 0)
      : ring_(static_cast<std::size_t>(blocks) * prm::kWqeBasicBlock),
        receive_(kReceiveCount << kReceiveShift),
        page_(prm::kUarPageSize) {
    uar_ = Uar::over(page_.data(),
                     blue_flame_half != 0 ? Uar::Kind::write_combining : Uar::Kind::uncached,
                     blue_flame_half);
    qp.verbs.qp.qp_type = type;
    qp.verbs.qp.qp_num = kQpn;
    qp.can_send = qp.can_receive = true;
    SendQueue& sq = qp.sq;
    sq.start = ring_.data();
    sq.block_count = blocks;
    sq.block_mask = blocks - 1;
    sq.end = sq.start + static_cast<std::size_t>(blocks) * prm::kWqeBasicBlock;
    sq.max_post = blocks;
    sq.plain_type = type == IBV_QPT_RC || type == IBV_QPT_UC;
    sq.max_sge = 8;
    sq.max_inline = 128;
    sq.qpn = kQpn;
    sq.slots = std::make_unique<SendSlot[]>(blocks);
    sq.record = &record[prm::QpDoorbellRecord::send_word];
    sq.uar = uar_.get();
    sq.hints = &hints;
    qp.rq.start = receive_.data();
    qp.rq.count = kReceiveCount;
    qp.rq.stride_shift = kReceiveShift;
    qp.rq.max_sge = (1U << kReceiveShift) / prm::DataSegment::size;
    qp.rq.wr_ids = std::make_unique<std::uint64_t[]>(kReceiveCount);
    qp.rq.record = &record[prm::QpDoorbellRecord::receive_word];
    install_builder(qp);
  }

  std::uint8_t* block(std::uint32_t index) { return qp.sq.block(index); }
  std::uint8_t* ring() { return ring_.data(); }
  std::size_t ring_size() const { return static_cast<std::size_t>(qp.sq.end - qp.sq.start); }
  std::uint8_t* page() { return page_.data(); }
  std::uint8_t* receive_entry(std::uint32_t index) {
    return receive_.data() + (static_cast<std::size_t>(index) << kReceiveShift);
  }
  ibv_qp* base() { return &qp.verbs.qp; }
  ibv_qp_ex* ex() { return &qp.verbs.qp_ex; }
  int post(ibv_send_wr& wr) {
    ibv_send_wr* bad = nullptr;
    return post_send(base(), &wr, &bad);
  }
  /// The device has completed everything.
  void complete_all() { qp.sq.tail = qp.sq.head; }

  static constexpr std::uint32_t kQpn = 0x1234;
  static constexpr std::uint32_t kReceiveCount = 4;
  static constexpr std::uint32_t kReceiveShift = 6;

  QueuePair qp;
  Hints hints;
  prm::Be32 record[2]{};

 private:
  AlignedMemory ring_;
  AlignedMemory receive_;
  AlignedMemory page_;
  std::unique_ptr<Uar> uar_;
};

/// A completion queue on plain memory, to which the test writes CQEs as the device would.
class PlainCompletionQueue {
 public:
  explicit PlainCompletionQueue(std::uint32_t count = 8, std::uint32_t cqe_size = prm::kCqeSize64)
      : entries_(static_cast<std::size_t>(count) * cqe_size), page_(prm::kUarPageSize) {
    uar_ = Uar::over(page_.data(), Uar::Kind::uncached, 0);
    cq.cqe_size = cqe_size;
    cq.set_ring(entries_.data(), count);
    cq.cqn = kCqn;
    cq.record = record;
    cq.uar = uar_.get();
    cq.hints = &hints;
    cq.resources = &resources;
    initialize_entries(cq.entries, count, cqe_size);
    install_extended_polling(cq, IBV_WC_STANDARD_FLAGS);
  }

  /// Writes the next CQE: `fill` sets fields by prm::Cqe, then the owner bit makes it visible.
  template <typename Fill>
  void write(prm::CqeOpcode opcode, std::uint32_t user_index, Fill fill) {
    auto* bytes = reinterpret_cast<std::uint8_t*>(cq.cqe(producer_));
    std::fill_n(bytes, prm::Cqe::size - 1, std::uint8_t{0});
    prm::Cqe::srqn_user_index::set(bytes, user_index);
    fill(bytes);
    const unsigned owner = (producer_ & cq.count) != 0 ? 1 : 0;
    bytes[prm::Cqe::owner_offset] =
        static_cast<std::uint8_t>(static_cast<unsigned>(opcode) << 4 | owner);
    ++producer_;
  }
  void write(prm::CqeOpcode opcode, std::uint32_t user_index) {
    write(opcode, user_index, [](std::uint8_t*) {});
  }
  int poll(ibv_wc& wc) { return poll_cq(&cq.verbs.cq, 1, &wc); }
  std::uint8_t* page() { return page_.data(); }

  static constexpr std::uint32_t kCqn = 0x77;

  CompletionQueue cq;
  Hints hints;
  ResourceTable resources;
  prm::Be32 record[2]{};

 private:
  AlignedMemory entries_;
  AlignedMemory page_;
  std::unique_ptr<Uar> uar_;
  std::uint32_t producer_ = 0;
};

}  // namespace softhca::provider
