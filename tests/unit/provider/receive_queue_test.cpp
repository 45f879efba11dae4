// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <vector>

#include "tests/unit/provider/queue_fixture.h"

namespace softhca::provider {
namespace {

using prm::DataSegment;

TEST(ReceiveQueue, ScatterListEndsWithTheTerminatingKey) {
  PlainQueuePair plain(IBV_QPT_RC);
  ibv_sge list[] = {{0x1000, 100, 7}, {0x2000, 200, 8}};
  ibv_recv_wr wr{};
  wr.wr_id = 5;
  wr.sg_list = list;
  wr.num_sge = 2;
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(post_recv(plain.base(), &wr, &bad), 0);
  const std::uint8_t* entry = plain.receive_entry(0);
  EXPECT_EQ(DataSegment::byte_count::get(entry), 100U);
  EXPECT_EQ(DataSegment::lkey::get(entry + 16), 8U);
  EXPECT_EQ(DataSegment::address::get(entry + 16), 0x2000U);
  EXPECT_EQ(DataSegment::lkey::get(entry + 32), prm::kInvalidLkey);
  EXPECT_EQ(plain.record[0].get(), 1U);
}

TEST(ReceiveQueue, FullQueueRefusesTheRest) {
  PlainQueuePair plain(IBV_QPT_RC);
  std::vector<ibv_recv_wr> wr(PlainQueuePair::kReceiveCount + 1);
  for (std::size_t i = 0; i + 1 < wr.size(); ++i) wr[i].next = &wr[i + 1];
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(post_recv(plain.base(), wr.data(), &bad), ENOMEM);
  EXPECT_EQ(bad, &wr.back());
  EXPECT_EQ(plain.record[0].get(), PlainQueuePair::kReceiveCount);
}

TEST(ReceiveQueue, TooManyEntriesAreRefused) {
  PlainQueuePair plain(IBV_QPT_RC);
  std::vector<ibv_sge> list(plain.qp.rq.max_sge + 1);
  ibv_recv_wr wr{};
  wr.sg_list = list.data();
  wr.num_sge = static_cast<int>(list.size());
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(post_recv(plain.base(), &wr, &bad), EINVAL);
  EXPECT_EQ(bad, &wr);
  EXPECT_EQ(plain.record[0].get(), 0U);
}

class SharedReceiveRingTest : public testing::Test {
 protected:
  SharedReceiveRingTest() : memory_(kCount * 64) {
    ring_.start = memory_.data();
    ring_.count = kCount;
    ring_.stride_shift = 6;
    ring_.max_sge = 3;
    ring_.wr_ids = std::make_unique<std::uint64_t[]>(kCount);
    ring_.record = record_;
    ring_.initialize();
  }
  int post(std::uint64_t wr_id) {
    ibv_sge sge{0x1000, 10, 1};
    ibv_recv_wr wr{};
    wr.wr_id = wr_id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    return ring_.post(&wr, &bad);
  }

  static constexpr std::uint32_t kCount = 4;
  AlignedMemory memory_;
  SharedReceiveRing ring_;
  prm::Be32 record_[2]{};
};

TEST_F(SharedReceiveRingTest, OneEntryStaysWithTheSoftware) {
  for (std::uint64_t i = 0; i + 1 < kCount; ++i) EXPECT_EQ(post(i), 0);
  EXPECT_EQ(post(9), ENOMEM);
  EXPECT_EQ(record_[0].get(), kCount - 1);
}

TEST_F(SharedReceiveRingTest, EntriesCompleteInAnyOrderAndGoToTheEndOfTheList) {
  for (std::uint64_t i = 0; i < 3; ++i) ASSERT_EQ(post(10 + i), 0);
  std::uint64_t wr_id = 0;
  ASSERT_TRUE(ring_.complete(1, wr_id));
  EXPECT_EQ(wr_id, 11U);
  EXPECT_EQ(ring_.link(3)->next_wqe_index.get(), 1U);
  ASSERT_EQ(post(20), 0);  // takes entry 3
  EXPECT_EQ(ring_.head, 1U);
  ASSERT_TRUE(ring_.complete(3, wr_id));
  EXPECT_EQ(wr_id, 20U);
}

TEST_F(SharedReceiveRingTest, AnIndexOutOfRangeIsNotBelieved) {
  std::uint64_t wr_id = 0;
  EXPECT_FALSE(ring_.complete(kCount, wr_id));
  EXPECT_FALSE(ring_.complete(0xffff, wr_id));
}

}  // namespace
}  // namespace softhca::provider
