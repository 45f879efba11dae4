// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/engine/spin_schedule.h"

#include <gtest/gtest.h>

namespace softhca::emulator {
namespace {

TEST(SpinSchedule, PollsForTheTimeGiven) {
  const SpinSchedule spin(50'000);
  EXPECT_TRUE(spin.spins(1'000'000, 1'000'000));
  EXPECT_TRUE(spin.spins(1'049'999, 1'000'000));
  EXPECT_FALSE(spin.spins(1'050'000, 1'000'000));
}

TEST(SpinSchedule, DoesNotPollWithoutTimeForIt) {
  EXPECT_FALSE(SpinSchedule(0).spins(1'000'000, 1'000'000));
}

TEST(SpinSchedule, ShortYieldsChangeNothing) {
  SpinSchedule spin(50'000);
  spin.yielded(1'000'000, 1'000'000 + SpinSchedule::kLongYield);
  EXPECT_TRUE(spin.spins(1'400'000, 1'390'000));
}

TEST(SpinSchedule, AfterALongYieldItSleepsForAWhile) {
  SpinSchedule spin(50'000);
  const Nanoseconds back = 4'000'000;
  spin.yielded(1'000'000, back);
  EXPECT_FALSE(spin.spins(back, back));
  EXPECT_FALSE(spin.spins(back + SpinSchedule::kPause - 1, back + SpinSchedule::kPause - 1));
  EXPECT_TRUE(spin.spins(back + SpinSchedule::kPause, back + SpinSchedule::kPause));
}

}  // namespace
}  // namespace softhca::emulator
