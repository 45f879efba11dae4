// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <gtest/gtest.h>

#include <memory>

#include "hw-model/runtime/ring.h"

namespace softhca {
namespace {

TEST(Ring, GivesBackInOrderWhileItGrowsAndWraps) {
  Ring<std::unique_ptr<int>> ring;
  int in = 0;
  int out = 0;
  for (int round = 1; round < 60; ++round) {
    for (int i = 0; i < round; ++i) ring.push_back(std::make_unique<int>(in++));
    for (int i = 0; i < round - 1; ++i) {
      ASSERT_EQ(*ring.front(), out);
      ASSERT_EQ(*ring.pop_front(), out++);
    }
    ASSERT_EQ(ring.size(), static_cast<std::size_t>(in - out));
  }
  while (!ring.empty()) ASSERT_EQ(*ring.pop_front(), out++);
  EXPECT_EQ(in, out);
}

TEST(Ring, TakesElementsInFrontAsWell) {
  Ring<int> ring;
  for (int i = 0; i < 20; ++i) ring.push_front(i);
  ring.push_back(-1);
  for (int i = 19; i >= -1; --i) EXPECT_EQ(ring.pop_front(), i);
  EXPECT_TRUE(ring.empty());
}

TEST(Ring, TakesElementsOutOfItsMiddleAndItsEnd) {
  for (int rotated = 0; rotated < 16; ++rotated) {
    Ring<int> ring;
    for (int i = 0; i < rotated; ++i) ring.push_back(-1);
    while (!ring.empty()) ring.pop_front();
    for (const int value : {3, 1, 2, 3, 3, 4, 3}) ring.push_back(value);
    ring.erase(3);
    ring.erase(7);
    EXPECT_EQ(ring.size(), 3U);
    EXPECT_EQ(ring.pop_back(), 4);
    EXPECT_EQ(ring.pop_front(), 1);
    EXPECT_EQ(ring.pop_back(), 2);
    EXPECT_TRUE(ring.empty());
    ring.erase(1);
    EXPECT_TRUE(ring.empty());
  }
}

TEST(Ring, KeepsNothingOfWhatWasTakenOrCleared) {
  Ring<std::shared_ptr<int>> ring;
  const auto value = std::make_shared<int>(1);
  ring.push_back(value);
  ring.push_back(value);
  EXPECT_EQ(value.use_count(), 3);
  ring.pop_front();
  EXPECT_EQ(value.use_count(), 2);
  ring.clear();
  EXPECT_EQ(value.use_count(), 1);
  EXPECT_TRUE(ring.empty());
}

}  // namespace
}  // namespace softhca
