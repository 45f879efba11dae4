// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/runtime/doorbell_hints.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>

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
  EXPECT_EQ(bitmap->top, 0U);
  EXPECT_EQ(drain(), 0U);
}

TEST_F(HintBitmapTest, visits_per_call_are_bounded_and_the_others_stay_marked) {
  for (std::uint32_t number = 0; number < kAll; ++number) bitmap->mark(number);
  while (seen.size() < kAll) {
    ASSERT_NE(bitmap->top, 0U) << "whoever wants to sleep looks here";
    const std::size_t visits = drain();
    ASSERT_NE(visits, 0U);
    ASSERT_LE(visits, HintBitmap::kMaxVisits + 63U);
  }
  EXPECT_EQ(bitmap->top, 0U);
}

TEST_F(HintBitmapTest, numbers_left_over_in_several_groups_are_all_visited_later) {
  // One per word, so that the bound falls into the middle of a group.
  for (std::uint32_t number = 0; number < kAll; number += 32) bitmap->mark(number);
  for (int calls = 0; bitmap->top != 0 && calls < 10; ++calls) drain();
  EXPECT_EQ(seen.size(), kAll / 32);
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
  EXPECT_EQ(hints->sq.top, 0U);
  EXPECT_EQ(hints->cq_arm.top, 0U);
  EXPECT_FALSE(hints->any());
  host.function.attach_doorbell_hints(nullptr);
}

}  // namespace
}  // namespace softhca::test
