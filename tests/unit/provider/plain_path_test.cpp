// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "tests/unit/provider/queue_fixture.h"

/// Plain requests and completions (post_plain.cpp, cq_plain.h): the short way does what the long
/// one does, and is not taken where it would not. The first request of a queue never takes it.
namespace softhca::provider {
namespace {

constexpr std::uint32_t kBlocks = 8;

class PlainPathTest : public testing::Test {
 protected:
  static ibv_send_wr request(ibv_wr_opcode opcode, ibv_sge& sge) {
    ibv_send_wr wr{};
    wr.wr_id = 0x1122334455667788;
    wr.opcode = opcode;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = 0xabcdef0123456789;
    wr.wr.rdma.rkey = 0x87654321;
    return wr;
  }
  static void open(PlainQueuePair& plain) {
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_SEND;
    ASSERT_EQ(plain.post(wr), 0);
  }
  static void complete(PlainQueuePair& plain, PlainCompletionQueue& cq, std::uint32_t counter) {
    cq.write(prm::CqeOpcode::requester, plain.qp.resource.user_index, [&](std::uint8_t* cqe) {
      prm::Cqe::send_opcode::set(cqe, static_cast<unsigned>(prm::WqeOpcode::rdma_write));
      prm::Cqe::qpn::set(cqe, PlainQueuePair::kQpn);
      prm::Cqe::wqe_counter::set(cqe, counter & 0xffff);
      prm::Cqe::byte_count::set(cqe, 8);
    });
  }

  ibv_sge sge_{0x123456789abcdef0, 0x1234, 0x5678};
};

TEST_F(PlainPathTest, TheWqeIsThatOfTheLongWay) {
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_SEND, IBV_WR_RDMA_READ}) {
    for (const unsigned flags : {0U, unsigned{IBV_SEND_SIGNALED}}) {
      for (const std::uint32_t before : {0U, 0xfffeU, 0xffffffffU}) {
        PlainQueuePair quick(IBV_QPT_RC, kBlocks);
        PlainQueuePair slow(IBV_QPT_RC, kBlocks);
        for (PlainQueuePair* plain : {&quick, &slow}) {
          plain->qp.sq.producer = before;
          open(*plain);
        }
        slow.qp.sq.close_plain_path();
        ibv_send_wr wr = request(opcode, sge_);
        wr.send_flags = flags;
        ASSERT_NE(quick.qp.sq.head, quick.qp.sq.plain_until);
        ASSERT_EQ(quick.post(wr), 0);
        ASSERT_EQ(slow.post(wr), 0);
        EXPECT_EQ(std::memcmp(quick.ring(), slow.ring(), quick.ring_size()), 0) << opcode;
        EXPECT_EQ(std::memcmp(quick.page(), slow.page(), prm::kUarPageSize), 0);
        EXPECT_EQ(quick.record[1].raw, slow.record[1].raw);
        EXPECT_EQ(quick.qp.sq.head, slow.qp.sq.head);
        EXPECT_EQ(quick.qp.sq.producer, slow.qp.sq.producer);
        const SendSlot& one = quick.qp.sq.slot(before + 1);
        const SendSlot& other = slow.qp.sq.slot(before + 1);
        EXPECT_EQ(one.wr_id, other.wr_id);
        EXPECT_EQ(one.wc_opcode, other.wc_opcode);
        EXPECT_EQ(one.completed, other.completed);
        EXPECT_EQ(one.special, other.special);
      }
    }
  }
}

TEST_F(PlainPathTest, InlineDataOfAnyLengthIsThatOfTheLongWay) {
  std::vector<std::uint8_t> memory(160);
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::uint8_t>(i + 1);
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_SEND}) {
    for (std::uint32_t length = 0; length <= 130; ++length) {
      PlainQueuePair quick(IBV_QPT_RC, kBlocks, 256);
      PlainQueuePair slow(IBV_QPT_RC, kBlocks, 256);
      ibv_sge sge{reinterpret_cast<std::uintptr_t>(memory.data()), length, 0};
      ibv_send_wr wr = request(opcode, sge);
      wr.send_flags |= IBV_SEND_INLINE;
      for (PlainQueuePair* plain : {&quick, &slow}) open(*plain);
      slow.qp.sq.close_plain_path();
      const int error = slow.post(wr);
      ASSERT_EQ(error, length <= 128 ? 0 : ENOMEM);
      ASSERT_EQ(quick.post(wr), error);
      EXPECT_EQ(std::memcmp(quick.ring(), slow.ring(), quick.ring_size()), 0) << length;
      EXPECT_EQ(std::memcmp(quick.page(), slow.page(), prm::kUarPageSize), 0) << length;
      EXPECT_EQ(quick.qp.sq.producer, slow.qp.sq.producer);
    }
  }
}

TEST_F(PlainPathTest, EveryWqeIsSignalledWhereTheQueueSaysSo) {
  PlainQueuePair plain(IBV_QPT_RC, kBlocks);
  plain.qp.sq.signal_all = prm::CtrlWords::kCqUpdate;
  open(plain);
  ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, sge_);
  wr.send_flags = 0;
  ASSERT_EQ(plain.post(wr), 0);
  EXPECT_EQ(prm::CtrlSegment::completion::get(plain.block(1)),
            static_cast<unsigned>(prm::CompletionMode::always));
}

TEST_F(PlainPathTest, AFullQueueTakesNoMoreUntilSomethingCompletes) {
  PlainQueuePair plain(IBV_QPT_RC, kBlocks);
  PlainCompletionQueue cq;
  cq.resources.insert(&plain.qp.resource);
  ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, sge_);
  std::uint32_t posted = 0;
  for (; posted < kBlocks; ++posted) ASSERT_EQ(plain.post(wr), 0);
  for (int round = 0; round < 40; ++round) {
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(post_send(plain.base(), &wr, &bad), ENOMEM);
    ASSERT_EQ(bad, &wr);
    complete(plain, cq, posted - kBlocks);
    ibv_wc wc{};
    ASSERT_EQ(cq.poll(wc), 1);
    ASSERT_EQ(wc.wr_id, wr.wr_id);
    ASSERT_EQ(plain.post(wr), 0) << round;
    ++posted;
  }
}

TEST_F(PlainPathTest, WhatFollowsAnInvalidationIsFenced) {
  PlainQueuePair plain(IBV_QPT_RC, kBlocks);
  ibv_send_wr invalidation{};
  invalidation.opcode = IBV_WR_LOCAL_INV;
  ASSERT_EQ(plain.post(invalidation), 0);
  const std::uint32_t next = plain.qp.sq.producer;
  ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, sge_);
  ASSERT_EQ(plain.post(wr), 0);
  ASSERT_EQ(plain.post(wr), 0);
  EXPECT_EQ(prm::CtrlSegment::fence_mode::get(plain.block(next)),
            static_cast<unsigned>(prm::FenceMode::initiator_small));
  EXPECT_EQ(prm::CtrlSegment::fence_mode::get(plain.block(next + 1)),
            static_cast<unsigned>(prm::FenceMode::none));
}

TEST_F(PlainPathTest, OtherQueueTypesKeepTheirRules) {
  PlainQueuePair datagram(IBV_QPT_UD, kBlocks);
  PlainQueuePair unreliable(IBV_QPT_UC, kBlocks);
  open(unreliable);
  ibv_send_wr write = request(IBV_WR_RDMA_WRITE, sge_);
  ibv_send_wr read = request(IBV_WR_RDMA_READ, sge_);
  EXPECT_EQ(datagram.post(write), EINVAL);
  EXPECT_EQ(datagram.post(write), EINVAL);
  EXPECT_EQ(unreliable.post(write), 0);
  EXPECT_EQ(unreliable.post(read), EINVAL);
}

TEST_F(PlainPathTest, AQueueThatMayNotSendSaysSo) {
  PlainQueuePair plain(IBV_QPT_RC, kBlocks);
  open(plain);
  plain.qp.can_send = false;
  plain.qp.sq.close_plain_path();
  ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, sge_);
  EXPECT_EQ(plain.post(wr), EINVAL);
  EXPECT_EQ(plain.post(wr), EINVAL);
}

TEST_F(PlainPathTest, BuilderAndRequestsMayAlternate) {
  PlainQueuePair plain(IBV_QPT_RC, kBlocks);
  ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, sge_);
  for (std::uint32_t i = 0; i < kBlocks; i += 2) {
    ASSERT_EQ(plain.post(wr), 0);
    ibv_wr_start(plain.ex());
    ibv_wr_rdma_write(plain.ex(), 1, 0x2000);
    ibv_wr_set_sge(plain.ex(), 1, 0x1000, 64);
    ASSERT_EQ(ibv_wr_complete(plain.ex()), 0);
  }
  EXPECT_EQ(plain.post(wr), ENOMEM);
  EXPECT_EQ(plain.qp.sq.head, kBlocks);
}

TEST_F(PlainPathTest, WithoutALockNoneIsTaken) {
  PlainQueuePair plain(IBV_QPT_RC, kBlocks);
  PlainCompletionQueue cq;
  plain.qp.sq.lock.set_needed(false);
  cq.cq.lock.set_needed(false);
  plain.qp.sq.lock.try_take();
  cq.cq.lock.try_take();
  cq.resources.insert(&plain.qp.resource);
  ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, sge_);
  for (std::uint32_t i = 0; i < 3; ++i) {
    ASSERT_EQ(plain.post(wr), 0);
    complete(plain, cq, i);
    ibv_wc wc{};
    ASSERT_EQ(cq.poll(wc), 1);
    EXPECT_EQ(wc.opcode, IBV_WC_RDMA_WRITE);
  }
}

TEST_F(PlainPathTest, CompletionsOfSeveralQueuePairsAreToldApart) {
  PlainQueuePair a(IBV_QPT_RC, kBlocks);
  PlainQueuePair b(IBV_QPT_RC, kBlocks);
  PlainCompletionQueue cq;
  cq.resources.insert(&a.qp.resource);
  cq.resources.insert(&b.qp.resource);
  b.qp.sq.qpn = 0x777;
  ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, sge_);
  for (std::uint32_t i = 0; i < 4; ++i) {
    wr.wr_id = 1;
    ASSERT_EQ(a.post(wr), 0);
    wr.wr_id = 2;
    ASSERT_EQ(b.post(wr), 0);
  }
  std::vector<std::uint64_t> seen;
  for (PlainQueuePair* plain : {&a, &a, &b, &b, &a, &b}) {
    complete(*plain, cq, plain->qp.sq.tail.load());
    ibv_wc wc{};
    ASSERT_EQ(cq.poll(wc), 1);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.byte_len, 8U);
    EXPECT_EQ(wc.wc_flags, 0U);
    seen.push_back(wc.wr_id);
  }
  EXPECT_EQ(seen, (std::vector<std::uint64_t>{1, 1, 2, 2, 1, 2}));
}

TEST_F(PlainPathTest, ASenderThatIsGoneIsForgotten) {
  PlainQueuePair plain(IBV_QPT_RC, kBlocks);
  PlainCompletionQueue cq;
  const std::uint32_t index = *cq.resources.insert(&plain.qp.resource);
  ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, sge_);
  ibv_wc wc{};
  ASSERT_EQ(plain.post(wr), 0);
  complete(plain, cq, 0);
  ASSERT_EQ(cq.poll(wc), 1);
  clean(cq.cq, index, nullptr);
  cq.resources.erase(index);
  complete(plain, cq, 1);
  EXPECT_LT(cq.poll(wc), 0) << "the index names nothing";
}

TEST_F(PlainPathTest, SeveralCompletionsArePolledAtOnce) {
  PlainQueuePair plain(IBV_QPT_RC, kBlocks);
  PlainCompletionQueue cq;
  cq.resources.insert(&plain.qp.resource);
  ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, sge_);
  for (std::uint32_t i = 0; i < 5; ++i) {
    wr.wr_id = i;
    ASSERT_EQ(plain.post(wr), 0);
    complete(plain, cq, i);
  }
  ibv_wc wc[8] = {};
  ASSERT_EQ(poll_cq(&cq.cq.verbs.cq, 0, wc), 0);
  ASSERT_EQ(poll_cq(&cq.cq.verbs.cq, 8, wc), 5);
  for (std::uint32_t i = 0; i < 5; ++i) EXPECT_EQ(wc[i].wr_id, i);
  EXPECT_EQ(cq.record[0].get(), 5U);
}

}  // namespace
}  // namespace softhca::provider
