// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/engine/spin_schedule.h"

#include <gtest/gtest.h>

namespace softhca::emulator {
namespace {

constexpr Nanoseconds kCallCost = 1'000;

TEST(SpinSchedule, PollsForTheTimeGiven) {
  const SpinSchedule spin(50'000, kCallCost);
  EXPECT_TRUE(spin.spins(1'000'000, 1'000'000));
  EXPECT_TRUE(spin.spins(1'049'999, 1'000'000));
  EXPECT_FALSE(spin.spins(1'050'000, 1'000'000));
}

TEST(SpinSchedule, DoesNotPollWithoutTimeForIt) {
  EXPECT_FALSE(SpinSchedule(0, kCallCost).spins(1'000'000, 1'000'000));
}

TEST(SpinSchedule, ShortYieldsChangeNothing) {
  SpinSchedule spin(50'000, kCallCost);
  spin.yielded(1'000'000, 1'000'000 + SpinSchedule::kLongYield);
  EXPECT_TRUE(spin.spins(1'400'000, 1'390'000));
}

TEST(SpinSchedule, AfterALongYieldItSleepsForAWhile) {
  SpinSchedule spin(50'000, kCallCost);
  const Nanoseconds back = 4'000'000;
  spin.yielded(1'000'000, back);
  EXPECT_FALSE(spin.spins(back, back));
  EXPECT_FALSE(spin.spins(back + SpinSchedule::kPause - 1, back + SpinSchedule::kPause - 1));
  EXPECT_TRUE(spin.spins(back + SpinSchedule::kPause, back + SpinSchedule::kPause));
}

TEST(SpinSchedule, AfterWorkItWaitsForAnAnswerBeforeItYields) {
  const SpinSchedule spin(50'000, kCallCost);
  constexpr Nanoseconds kAnswerTime = SpinSchedule::kAnswerTime * kCallCost;
  EXPECT_FALSE(spin.yields(1'000'000, 1'000'000));
  EXPECT_FALSE(spin.yields(1'000'000 + kAnswerTime - 1, 1'000'000));
  EXPECT_TRUE(spin.yields(1'000'000 + kAnswerTime, 1'000'000));
}

TEST(SpinSchedule, YieldsSeldomWhereNobodyElseRuns) {
  SpinSchedule spin(50'000, kCallCost);
  const Nanoseconds alone = 1'001'200;
  spin.yielded(1'000'000, alone);
  EXPECT_FALSE(spin.yields(alone, 0));
  EXPECT_FALSE(spin.yields(alone + YieldPacer::kAlone - 1, 0));
  EXPECT_TRUE(spin.yields(alone + YieldPacer::kAlone, 0));
}

TEST(SpinSchedule, YieldsAtOnceAgainWhereSomebodyElseRan) {
  SpinSchedule spin(50'000, kCallCost);
  const Nanoseconds shared = 1'010'000;
  spin.yielded(1'000'000, shared);
  EXPECT_TRUE(spin.yields(shared, 0));
}

TEST(YieldPacer, OnlyWhoGivesTheProcessorBackSharesIt) {
  YieldPacer pacer(kCallCost);
  Nanoseconds now = 0;
  const auto yield = [&](Nanoseconds lasts) {
    pacer.yielded(now, now + lasts);
    now += lasts;
  };
  EXPECT_FALSE(pacer.shared());
  for (unsigned i = 0; i < 100; ++i) yield(kCallCost);
  EXPECT_FALSE(pacer.shared()) << "nobody is there";
  for (unsigned i = 1; i < YieldPacer::kReturned; ++i) {
    yield(20'000);
    EXPECT_FALSE(pacer.shared());
  }
  yield(20'000);
  EXPECT_TRUE(pacer.shared());
  yield(YieldPacer::kLongYield);
  EXPECT_FALSE(pacer.shared()) << "kept for a slice";
  for (unsigned i = 0; i < 50; ++i) {
    yield(i % 4 == 0 ? 3'000'000 : 20'000);
    EXPECT_FALSE(pacer.shared());
  }
  for (unsigned i = 0; i < YieldPacer::kReturned; ++i) yield(20'000);
  EXPECT_TRUE(pacer.shared());
  for (unsigned i = 0; i < YieldPacer::kTries; ++i) yield(kCallCost);
  EXPECT_FALSE(pacer.shared()) << "the other one has gone";
}

TEST(YieldPacer, TriesSomeMoreWhereSomebodyWasBefore) {
  YieldPacer pacer(kCallCost);
  Nanoseconds now = 1'000'000;
  const auto yield = [&](Nanoseconds took) {
    pacer.yielded(now, now + took);
    now += took;
  };
  yield(kCallCost);
  EXPECT_FALSE(pacer.due(now)) << "alone";
  yield(20 * kCallCost);
  for (unsigned i = 1; i < YieldPacer::kTries; ++i) {
    EXPECT_TRUE(pacer.due(now)) << i;
    yield(kCallCost);
  }
  EXPECT_TRUE(pacer.due(now));
  yield(kCallCost);
  EXPECT_FALSE(pacer.due(now)) << "whoever was there has gone";
  EXPECT_TRUE(pacer.due(now + YieldPacer::kAlone));
}

TEST(YieldPacer, TakesTheCheapestCallForItsMeasure) {
  Nanoseconds time = 0;
  Nanoseconds cost = 9;
  EXPECT_EQ(cheapest_of([&] { return time; }, [&] { time += cost--; }), 2U);
}

}  // namespace
}  // namespace softhca::emulator
