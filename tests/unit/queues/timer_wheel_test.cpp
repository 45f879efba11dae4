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

// Who sleeps until earliest() and expires then makes headway, whatever the timers are.

struct Timed {
  TimerWheel<Timed>::Entry timer{*this};
  Nanoseconds wanted = kNever;
};

TEST(TimerWheelProgress, ManyThatEndInTheTickThatHasBegun) {
  std::deque<Timed> owners(TimerWheel<Timed>::kLooks + 1);
  TimerWheel<Timed> wheel;
  constexpr Nanoseconds kNow = (1ULL << 40) + 100;  // Within a tick.
  for (Timed& owner : owners) wheel.start(owner.timer, kNow + 100);
  wheel.expire(kNow, [](Timed&) { FAIL(); });
  EXPECT_GT(wheel.earliest(), kNow) << "who waits until then waits no time at all";
  wheel.clear();
}

TEST(TimerWheelProgress, RandomTimersAgainstAMap) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const auto below = [&](std::uint64_t limit) { return random() % limit; };
    const std::size_t count = below(3) == 0 ? 400 : 1 + below(60);
    std::deque<Timed> owners(count);
    TimerWheel<Timed> wheel;
    Nanoseconds now = below(3) == 0 ? below(1ULL << 62) : below(5000);
    const auto delay = [&]() -> Nanoseconds {
      return below(8) == 0 ? 0 : below(1ULL << (1 + below(below(20) == 0 ? 60 : 28)));
    };
    const auto start = [&](Timed& owner, Nanoseconds deadline) {
      owner.wanted = deadline;
      wheel.start(owner.timer, deadline);
    };
    const auto first = [&] {
      Nanoseconds least = kNever;
      for (const Timed& owner : owners) least = std::min(least, owner.wanted);
      return least;
    };
    for (unsigned i = 0; i < 600; ++i) {
      for (std::uint64_t changes = below(6); changes != 0; --changes) {
        Timed& owner = owners[below(count)];
        if (below(4) == 0) {
          owner.wanted = kNever;
          wheel.stop(owner.timer);
        } else {
          const Nanoseconds by = delay();
          const Nanoseconds base = below(16) == 0 ? now - std::min<Nanoseconds>(now, by) : now;
          start(owner, base > kNever - 1 - by ? kNever - 1 : base + by);
        }
      }
      if (below(97) == 0) {
        wheel.clear();
        // The owners are gone, as after Transport::clear().
        owners.clear();
        owners.resize(count);
      }
      // One that is past already ends as soon as time moves.
      ASSERT_LE(wheel.earliest(), std::max(first(), now + 1));
      ASSERT_EQ(wheel.earliest() == kNever, first() == kNever);
      switch (below(4)) {
        case 0:
          now = std::max(now, wheel.earliest() == kNever ? now : wheel.earliest());
          break;
        case 1:
          now += std::min<Nanoseconds>(delay(), kNever - 2 - now);
          break;
        default:
          now += std::min<Nanoseconds>(below(3000), kNever - 2 - now);
      }
      std::map<Timed*, bool> restarted;
      const Nanoseconds before = first();
      std::size_t ended = 0;
      wheel.expire(now, [&](Timed& owner) {
        ++ended;
        ASSERT_LE(owner.wanted, now) << "too early";
        ASSERT_FALSE(restarted.contains(&owner)) << "twice";
        owner.wanted = kNever;
        if (below(3) == 0) {
          restarted[&owner] = true;
          start(owner,
                below(2) == 0 ? now : now + std::min<Nanoseconds>(delay(), kNever - 1 - now));
        }
        if (below(5) == 0) {
          Timed& other = owners[below(count)];
          if (!restarted.contains(&other)) {
            other.wanted = kNever;
            wheel.stop(other.timer);
          }
        }
      });
      ASSERT_EQ(before <= now, ended != 0);
      for (Timed& owner : owners) {
        ASSERT_TRUE(owner.wanted > now || restarted.contains(&owner)) << "too late";
        ASSERT_EQ(owner.timer.deadline(), owner.wanted);
      }
    }
    wheel.clear();
  }
}

}  // namespace
}  // namespace softhca::test
