// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/runtime/timer_wheel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <vector>

namespace softhca::test {
namespace {

struct Owner {
  int number = 0;
  TimerWheel<Owner>::Entry timer{*this};
};

class TimerWheelTest : public ::testing::Test {
 protected:
  Owner& add(Nanoseconds deadline) {
    Owner& owner = owners.emplace_back();
    owner.number = static_cast<int>(owners.size()) - 1;
    wheel.start(owner.timer, deadline);
    return owner;
  }
  std::vector<int> expire(Nanoseconds now) {
    std::vector<int> numbers;
    wheel.expire(now, [&](Owner& owner) { numbers.push_back(owner.number); });
    return numbers;
  }
  std::deque<Owner> owners;
  TimerWheel<Owner> wheel;
};

TEST_F(TimerWheelTest, EndsAtTheNanosecondOnEveryLevel) {
  Nanoseconds now = 0;
  for (const Nanoseconds delay :
       {Nanoseconds{1}, Nanoseconds{1023}, Nanoseconds{1024}, Nanoseconds{65'535},
        Nanoseconds{65'536}, Nanoseconds{4'194'304}, Nanoseconds{67'108'864}, Nanoseconds{1} << 34,
        Nanoseconds{1} << 45, Nanoseconds{1} << 55}) {
    const Nanoseconds deadline = now + delay;
    Owner& owner = add(deadline);
    EXPECT_EQ(wheel.earliest(), deadline);
    EXPECT_TRUE(expire(deadline - 1).empty()) << delay;
    EXPECT_EQ(wheel.earliest(), deadline);
    EXPECT_EQ(expire(deadline), std::vector<int>{owner.number}) << delay;
    EXPECT_TRUE(wheel.empty());
    EXPECT_EQ(wheel.earliest(), kNever);
    now = deadline;
  }
}

TEST_F(TimerWheelTest, TheLastDeadlineThereIsCanBeReached) {
  add(kNever - 1);
  EXPECT_EQ(wheel.earliest(), kNever - 1);
  EXPECT_TRUE(expire(kNever - 2).empty());
  EXPECT_EQ(expire(kNever - 1).size(), 1U);
}

TEST_F(TimerWheelTest, WhatIsPastEndsAtOnce) {
  EXPECT_TRUE(expire(1'000'000).empty());
  add(5);
  EXPECT_EQ(wheel.earliest(), 5U);
  EXPECT_EQ(expire(1'000'000).size(), 1U);
}

TEST_F(TimerWheelTest, AStoppedOrMovedTimerDoesNotEndWhenItWould) {
  Owner& stopped = add(100);
  Owner& moved = add(200);
  Owner& sooner = add(1'000'000);
  wheel.stop(stopped.timer);
  wheel.stop(stopped.timer);
  wheel.start(moved.timer, 5'000);
  wheel.start(sooner.timer, 300);
  EXPECT_EQ(stopped.timer.deadline(), kNever);
  EXPECT_EQ(expire(4'999), std::vector<int>{sooner.number});
  EXPECT_EQ(expire(5'000), std::vector<int>{moved.number});
  EXPECT_TRUE(wheel.empty());
}

TEST_F(TimerWheelTest, WhoEndsMayStartAndStopOthers) {
  Owner& first = add(10);
  Owner& second = add(20);
  Owner& third = add(30);
  std::vector<int> ended;
  const auto on_end = [&](Owner& owner) {
    ended.push_back(owner.number);
    if (&owner != &first) return;
    wheel.stop(second.timer);
    wheel.start(third.timer, 15);
    wheel.start(first.timer, 5);
  };
  wheel.expire(50, on_end);
  EXPECT_EQ(ended, std::vector<int>{first.number}) << "the others were stopped, or started anew";
  ended.clear();
  wheel.expire(50, [&](Owner& owner) { ended.push_back(owner.number); });
  std::sort(ended.begin(), ended.end());
  EXPECT_EQ(ended, (std::vector<int>{first.number, third.number}));
}

TEST_F(TimerWheelTest, ManyInOneSlotAreToldByABoundThatIsNotLate) {
  constexpr Nanoseconds kFirst = 100'000'000;
  for (unsigned i = 0; i < 10 * TimerWheel<Owner>::kLooks; ++i) add(kFirst + i * 1000);
  unsigned wakes = 0;
  std::size_t ended = 0;
  for (Nanoseconds now = 0; ended == 0; ++wakes) {
    ASSERT_LE(wheel.earliest(), kFirst);
    ASSERT_GT(wheel.earliest(), now);
    now = wheel.earliest();
    ended = expire(now).size();
    EXPECT_EQ(ended, now == kFirst ? 1U : 0U);
    ASSERT_LT(wakes, 10U);
  }
}

TEST_F(TimerWheelTest, ClearStopsAll) {
  add(10);
  add(1'000'000);
  wheel.clear();
  EXPECT_TRUE(wheel.empty());
  EXPECT_EQ(wheel.earliest(), kNever);
  EXPECT_TRUE(expire(2'000'000).empty());
}

/// The same as a sorted list does, for any sequence of calls.
TEST_F(TimerWheelTest, IsAsASortedListIs) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    std::mt19937_64 random(seed);
    TimerWheel<Owner> tested;
    std::deque<Owner> all(60);
    for (int i = 0; i < 60; ++i) all[static_cast<std::size_t>(i)].number = i;
    std::map<int, Nanoseconds> model;
    Nanoseconds now = random() >> (random() % 50);
    tested.expire(now, [](Owner&) { FAIL(); });
    const auto earliest = [&model] {
      Nanoseconds found = kNever;
      for (const auto& [number, deadline] : model) found = std::min(found, deadline);
      return found;
    };
    for (int step = 0; step < 2000; ++step) {
      Owner& owner = all[random() % all.size()];
      switch (random() % 4) {
        case 0:
        case 1: {
          const Nanoseconds by = random() >> (10 + random() % 54);
          const Nanoseconds deadline = by >= kNever - now ? kNever - 1 : now + by;
          tested.start(owner.timer, deadline);
          model[owner.number] = deadline;
          break;
        }
        case 2:
          tested.stop(owner.timer);
          model.erase(owner.number);
          break;
        default: {
          const bool to_the_first = random() % 2 == 0 && !model.empty();
          const Nanoseconds by = random() >> (20 + random() % 44);
          const Nanoseconds next = by >= kNever - now ? now : now + by;
          now = to_the_first ? std::max(now, earliest()) : next;
          tested.expire(now, [&](Owner& ended) {
            ASSERT_EQ(model.count(ended.number), 1U);
            EXPECT_LE(model[ended.number], now);
            model.erase(ended.number);
          });
          break;
        }
      }
      ASSERT_EQ(tested.empty(), model.empty()) << seed << " " << step;
      ASSERT_EQ(tested.earliest(), earliest()) << seed << " " << step;
    }
  }
}

}  // namespace
}  // namespace softhca::test
