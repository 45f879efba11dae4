// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "tests/unit/provider/queue_fixture.h"

namespace softhca::provider {
namespace {

class HintsTest : public testing::Test {
 protected:
  HintsTest() : map_(new DoorbellHints{}), wake_(eventfd(0, EFD_NONBLOCK)) {}
  ~HintsTest() override { close(wake_); }
  std::uint64_t wakes() const {
    std::uint64_t count = 0;
    return read(wake_, &count, sizeof(count)) == sizeof(count) ? count : 0;
  }
  static std::vector<std::uint32_t> drained(HintBitmap& bitmap) {
    std::vector<std::uint32_t> numbers;
    bitmap.drain([&](std::uint32_t number) { numbers.push_back(number); });
    return numbers;
  }

  std::unique_ptr<DoorbellHints> map_;
  int wake_;
};

TEST_F(HintsTest, PostingMarksTheQueuePairAndLeavesAnAwakeEngineAlone) {
  PlainQueuePair plain(IBV_QPT_RC);
  plain.hints.adopt(map_.get(), wake_);
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  ASSERT_EQ(plain.post(wr), 0);
  EXPECT_EQ(drained(map_->sq), std::vector<std::uint32_t>{PlainQueuePair::kQpn});
  EXPECT_EQ(wakes(), 0U);
}

TEST_F(HintsTest, PostingWakesASleepingEngineOnce) {
  PlainQueuePair plain(IBV_QPT_RC);
  plain.hints.adopt(map_.get(), wake_);
  map_->engine_state = kEngineSleeping;
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  ASSERT_EQ(plain.post(wr), 0);
  ASSERT_EQ(plain.post(wr), 0);
  EXPECT_EQ(wakes(), 1U);
}

TEST_F(HintsTest, PostingToTheQueueThatIsWatchedMarksNothingAndStillWakesTheEngine) {
  PlainQueuePair plain(IBV_QPT_RC);
  plain.hints.adopt(map_.get(), wake_);
  map_->watched = PlainQueuePair::kQpn + 1;
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  for (int i = 0; i < 3; ++i) ASSERT_EQ(plain.post(wr), 0);
  EXPECT_FALSE(map_->any());
  EXPECT_EQ(wakes(), 0U);
  map_->engine_state = kEngineSleeping;
  ASSERT_EQ(plain.post(wr), 0);
  EXPECT_FALSE(map_->any());
  EXPECT_EQ(wakes(), 1U);
  map_->watched = PlainQueuePair::kQpn + 2;
  ASSERT_EQ(plain.post(wr), 0);
  EXPECT_EQ(drained(map_->sq), std::vector<std::uint32_t>{PlainQueuePair::kQpn});
}

TEST_F(HintsTest, AWakeThatFailsIsTriedAgainByTheNextRinger) {
  PlainQueuePair plain(IBV_QPT_RC);
  const int closed = dup(wake_);
  close(closed);
  plain.hints.adopt(map_.get(), closed);
  map_->engine_state = kEngineSleeping;
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  ASSERT_EQ(plain.post(wr), 0);
  EXPECT_EQ(map_->engine_state, kEngineSleeping);
  plain.hints.adopt(map_.get(), wake_);
  ASSERT_EQ(plain.post(wr), 0);
  EXPECT_EQ(wakes(), 1U);
}

TEST_F(HintsTest, ArmingMarksTheCompletionQueue) {
  PlainCompletionQueue plain;
  plain.hints.adopt(map_.get(), wake_);
  map_->engine_state = kEngineSleeping;
  ASSERT_EQ(req_notify_cq(&plain.cq.verbs.cq, 0), 0);
  EXPECT_EQ(drained(map_->cq_arm), std::vector<std::uint32_t>{PlainCompletionQueue::kCqn});
  EXPECT_EQ(wakes(), 1U);
}

TEST_F(HintsTest, WithHintsTheRegisterIsLeftAlone) {
  PlainQueuePair plain(IBV_QPT_RC, 16, 256);
  plain.hints.adopt(map_.get(), wake_);
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  ASSERT_EQ(plain.post(wr), 0);
  EXPECT_EQ(prm::CtrlSegment::qpn::get(plain.page() + prm::Uar::blue_flame), 0U)
      << "nobody looks at the page";
}

}  // namespace
}  // namespace softhca::provider
