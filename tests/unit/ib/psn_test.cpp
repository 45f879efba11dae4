// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/ib/psn.h"

#include <gtest/gtest.h>

namespace softhca::ib {
namespace {

TEST(Psn, CountsModulo2To24) {
  EXPECT_EQ(psn_add(0xffffff, 1), 0U);
  EXPECT_EQ(psn_add(0xfffffe, 5), 3U);
  EXPECT_EQ(psn_add(5, 0), 5U);
}

TEST(Psn, DistanceIsSignedAcrossTheWrap) {
  EXPECT_EQ(psn_diff(1, 0xffffff), 2);
  EXPECT_EQ(psn_diff(0xffffff, 1), -2);
  EXPECT_EQ(psn_diff(7, 7), 0);
  EXPECT_EQ(psn_diff(0x7fffff, 0), 0x7fffff);
  EXPECT_EQ(psn_diff(0x800000, 0), -0x800000);
}

TEST(Psn, OrderFollowsTheShorterWayRound) {
  EXPECT_TRUE(psn_before(0xffffff, 0));
  EXPECT_TRUE(psn_after(0, 0xffffff));
  EXPECT_FALSE(psn_before(3, 3));
  EXPECT_FALSE(psn_after(3, 3));
}

TEST(Psn, WindowIsHalfOpen) {
  EXPECT_TRUE(psn_in(0xfffffe, 0xfffffe, 4));
  EXPECT_TRUE(psn_in(1, 0xfffffe, 4));
  EXPECT_FALSE(psn_in(2, 0xfffffe, 4));
  EXPECT_FALSE(psn_in(0xfffffd, 0xfffffe, 4));
  EXPECT_FALSE(psn_in(5, 5, 0));
}

TEST(Psn, EmptyMessageTakesOnePacket) {
  EXPECT_EQ(packet_count(0, 1024), 1U);
  EXPECT_EQ(packet_count(1024, 1024), 1U);
  EXPECT_EQ(packet_count(1025, 1024), 2U);
  EXPECT_EQ(packet_count(0x80000000ULL, 256), 0x800000U);
}

}  // namespace
}  // namespace softhca::ib
