// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/runtime/aside_policy.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace softhca {
namespace {

class AsidePolicyTest : public testing::Test {
 protected:
  using Move = AsidePolicy::Move;
  Move decide(bool beside_engine) {
    return policy.decide(beside_engine, now, [this] { return switches; });
  }
  AsidePolicy policy;
  Nanoseconds now = 1'000'000'000;
  std::uint64_t switches = 100;
};

TEST_F(AsidePolicyTest, LeavesTheEnginesProcessorNowAndThen) {
  EXPECT_EQ(decide(false), Move::none);
  EXPECT_EQ(decide(true), Move::leave);
  EXPECT_EQ(decide(true), Move::none) << "the kernel has put it back at once";
  now += AsidePolicy::kInterval;
  EXPECT_EQ(decide(true), Move::leave);
}

TEST_F(AsidePolicyTest, ComesBackWhereTimeSlicesRunOut) {
  EXPECT_EQ(decide(true), Move::leave);
  Nanoseconds pause = AsidePolicy::kFirstPause;
  Nanoseconds left = now;
  for (int i = 0; i < 10; ++i) {
    while (now < left + AsidePolicy::kTrial - AsidePolicy::kGap) {
      now += AsidePolicy::kGap;
      ++switches;
      EXPECT_EQ(decide(false), Move::none);
    }
    now += AsidePolicy::kGap;
    EXPECT_EQ(decide(false), Move::come_back);
    now += pause - 1;
    EXPECT_EQ(decide(true), Move::none) << "it has been no good";
    now += 1;
    EXPECT_EQ(decide(true), Move::leave);
    left = now;
    pause = std::min(2 * pause, AsidePolicy::kLongestPause);
  }
}

TEST_F(AsidePolicyTest, StaysAwayWhereOthersYield) {
  EXPECT_EQ(decide(true), Move::leave);
  for (int i = 0; i < 1000; ++i) {
    now += AsidePolicy::kGap - 1;
    switches += 10;  // They may be wake-ups of others, and short.
    EXPECT_EQ(decide(false), Move::none);
  }
}

TEST_F(AsidePolicyTest, StaysAwayWhenItHadOtherThingsToDo) {
  EXPECT_EQ(decide(true), Move::leave);
  for (int i = 0; i < 100; ++i) {
    now += AsidePolicy::kTrial;
    EXPECT_EQ(decide(false), Move::none) << "nobody took the processor away";
  }
}

}  // namespace
}  // namespace softhca
