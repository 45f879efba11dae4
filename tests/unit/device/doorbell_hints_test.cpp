// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/runtime/doorbell_hints.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "hw-model/prm/iseg.h"
#include "tests/support/one_host.h"

namespace softhca::test {
namespace {

class HintBitmapTest : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kAll = 1U << kDoorbellHintsLogNumbers;
  /// Numbers of one drain().
  std::size_t drain() {
    std::size_t visits = 0;
    bitmap->drain([&](std::uint32_t number) {
      ++visits;
      EXPECT_TRUE(seen.insert(number).second) << number << " is visited twice";
    });
    return visits;
  }
  std::unique_ptr<HintBitmap> bitmap = std::make_unique<HintBitmap>();
  std::set<std::uint32_t> seen;
};

TEST_F(HintBitmapTest, marked_numbers_are_visited_once) {
  for (const std::uint32_t number : {0U, 63U, 64U, 4095U, 4096U, kAll - 1}) bitmap->mark(number);
  EXPECT_EQ(drain(), 6U);
  EXPECT_FALSE(bitmap->any());
  EXPECT_EQ(drain(), 0U);
}

TEST_F(HintBitmapTest, visits_per_call_are_bounded_and_the_others_stay_marked) {
  for (std::uint32_t number = 0; number < kAll; ++number) bitmap->mark(number);
  while (seen.size() < kAll) {
    ASSERT_TRUE(bitmap->any()) << "whoever wants to sleep looks here";
    const std::size_t visits = drain();
    ASSERT_NE(visits, 0U);
    ASSERT_LE(visits, HintBitmap::kMaxVisits + 63U + HintBitmap::kRecent);
  }
  EXPECT_FALSE(bitmap->any());
}

TEST_F(HintBitmapTest, numbers_left_over_in_several_groups_are_all_visited_later) {
  // One per word, so that the bound falls into the middle of a group.
  for (std::uint32_t number = 0; number < kAll; number += 32) bitmap->mark(number);
  for (int calls = 0; bitmap->any() && calls < 10; ++calls) drain();
  EXPECT_EQ(seen.size(), kAll / 32);
}

TEST_F(HintBitmapTest, the_last_few_take_one_word) {
  for (std::uint32_t number = 7; number < 7 + HintBitmap::kRecent; ++number) {
    bitmap->mark(number);
    bitmap->mark(number);
  }
  EXPECT_EQ(bitmap->top, 0U);
  bitmap->mark(7);
  EXPECT_EQ(bitmap->top, 0U) << "it is there already";
  bitmap->mark(kAll - 1);
  EXPECT_NE(bitmap->top, 0U);
  EXPECT_EQ(drain(), HintBitmap::kRecent + 1U);
  EXPECT_FALSE(bitmap->any());
}

TEST_F(HintBitmapTest, the_next_number_is_told_before_it_is_taken) {
  std::vector<std::uint32_t> expected;
  const auto expect = [&](std::uint32_t number) {
    EXPECT_TRUE(bitmap->any()) << "it is not taken yet";
    expected.push_back(number);
  };
  std::vector<std::uint32_t> visited;
  const auto visit = [&](std::uint32_t number) { visited.push_back(number); };
  EXPECT_FALSE(bitmap->drain(visit, expect));
  EXPECT_TRUE(expected.empty());
  bitmap->mark(kAll - 1);
  bitmap->mark(7);
  EXPECT_TRUE(bitmap->drain(visit, expect));
  EXPECT_EQ(expected, std::vector<std::uint32_t>{kAll - 1});
  EXPECT_EQ(visited, (std::vector<std::uint32_t>{kAll - 1, 7}));
  // A driver may write anything there.
  bitmap->recent = std::uint64_t{8} << HintBitmap::kRecentBits;
  EXPECT_TRUE(bitmap->drain(visit, expect));
  EXPECT_EQ(expected.size(), 1U);
  EXPECT_EQ(visited.back(), 7U);
}

TEST_F(HintBitmapTest, the_highest_number_fits_the_word) {
  bitmap->mark(kAll - 1);
  EXPECT_EQ(bitmap->top, 0U);
  EXPECT_EQ(drain(), 1U);
  EXPECT_TRUE(seen.contains(kAll - 1));
}

TEST_F(HintBitmapTest, marks_of_several_threads_are_all_taken) {
  constexpr std::uint32_t kThreads = 4;
  constexpr std::uint32_t kRounds = 20000;
  std::array<std::atomic<std::uint32_t>, kThreads> records{};
  std::vector<std::thread> ringers;
  for (std::uint32_t i = 0; i < kThreads; ++i) {
    ringers.emplace_back([&, i] {
      for (std::uint32_t round = 1; round <= kRounds; ++round) {
        records[i].store(round, std::memory_order_release);
        bitmap->mark(i);
      }
    });
  }
  std::array<std::uint32_t, kThreads> taken{};
  const auto all_taken = [&] {
    return std::all_of(taken.begin(), taken.end(), [](auto last) { return last == kRounds; });
  };
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!all_taken() && std::chrono::steady_clock::now() < end) {
    bitmap->drain([&](std::uint32_t number) {
      ASSERT_LT(number, kThreads);
      taken[number] = records[number].load(std::memory_order_acquire);
    });
  }
  for (std::thread& ringer : ringers) ringer.join();
  EXPECT_TRUE(all_taken()) << "a mark was lost";
}

TEST(CommandHints, AreTakenAndMayBeMarkedForNothing) {
  OneHost host;
  auto hints = std::make_unique<DoorbellHints>();
  host.function.attach_doorbell_hints(hints.get());
  hints->mark_commands(1);
  hints->mark_commands(1U << 31);
  EXPECT_TRUE(hints->any());
  host.function.step({});
  EXPECT_FALSE(hints->any()) << "there is no command queue yet";
  EXPECT_FALSE(host.function.failed());
  host.function.attach_doorbell_hints(nullptr);
}

TEST(FailedDevice, DropsHintsSoThatTheyAreNotTakenForWork) {
  OneHost host;
  auto hints = std::make_unique<DoorbellHints>();
  host.function.attach_doorbell_hints(hints.get());
  host.function.fail(static_cast<std::uint8_t>(prm::HealthSyndrome::firmware_error), "test");
  hints->sq.mark(5);
  hints->cq_arm.mark(5);
  hints->mark_commands(1);
  EXPECT_TRUE(hints->any());
  EXPECT_FALSE(host.function.step({}));
  EXPECT_FALSE(hints->any());
  host.function.attach_doorbell_hints(nullptr);
}

}  // namespace
}  // namespace softhca::test
