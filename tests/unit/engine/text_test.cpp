// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <array>
#include <cstring>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "emulator/cli/pcapng_counter.h"
#include "emulator/cli/table.h"
#include "emulator/engine/guid.h"
#include "emulator/engine/sweep_schedule.h"
#include "emulator/runtime/logging.h"

namespace softhca {
namespace {

TEST(Table, columns_are_as_wide_as_their_longest_cell) {
  cli::Table table({"HOST", "LID"});
  EXPECT_TRUE(table.empty());
  table.add({"a-long-name", "1"});
  table.add({"b"});
  EXPECT_EQ(table.text(2), "  HOST         LID\n  a-long-name  1\n  b\n");
}

void append_block(std::vector<std::byte>& stream, std::uint32_t type, std::uint32_t length) {
  const std::size_t start = stream.size();
  stream.resize(start + length);
  std::memcpy(stream.data() + start, &type, sizeof(type));
  std::memcpy(stream.data() + start + 4, &length, sizeof(length));
}

TEST(PcapngCounter, stops_at_the_end_of_the_last_wanted_packet_in_any_chunking) {
  std::vector<std::byte> stream;
  append_block(stream, 0x0a0d0d0a, 28);
  append_block(stream, 1, 20);
  append_block(stream, 6, 100);
  append_block(stream, 6, 40);
  const std::size_t end_of_second = stream.size();
  append_block(stream, 6, 40);
  for (const std::size_t chunk : {std::size_t{1}, std::size_t{7}, stream.size()}) {
    cli::PcapngCounter counter(2);
    std::size_t used = 0;
    for (std::size_t at = 0; at < stream.size(); at += chunk) {
      used += counter.feed(std::span(stream).subspan(at, std::min(chunk, stream.size() - at)));
    }
    EXPECT_EQ(used, end_of_second) << chunk;
    EXPECT_EQ(counter.packets(), 2U);
    EXPECT_TRUE(counter.full());
  }
}

TEST(PcapngCounter, takes_everything_without_a_limit_and_survives_a_bad_length) {
  std::vector<std::byte> stream;
  append_block(stream, 6, 40);
  stream.resize(stream.size() + 64);  // blocks of length 0
  cli::PcapngCounter counter(0);
  EXPECT_EQ(counter.feed(stream), stream.size());
  EXPECT_EQ(counter.packets(), 1U);
}

TEST(HostGuid, is_a_function_of_both_names_and_locally_administered) {
  EXPECT_EQ(emulator::host_guid("f", "a"), emulator::host_guid("f", "a"));
  std::set<std::uint64_t> seen;
  for (const char* fabric : {"f", "g"}) {
    for (const char* host : {"a", "b", "c"}) {
      for (const unsigned attempt : {0U, 1U}) {
        const std::uint64_t guid = emulator::host_guid(fabric, host, attempt);
        EXPECT_EQ(guid >> 40, 0x065346U);
        EXPECT_TRUE(seen.insert(guid).second) << fabric << "/" << host;
      }
    }
  }
}

constexpr Sweep kFound{.moved = true, .whole = true};
constexpr Sweep kNothing{.moved = false, .whole = true};

TEST(SweepSchedule, is_dense_while_it_finds_something_and_backs_off_to_a_bound) {
  emulator::SweepSchedule sweep;
  EXPECT_TRUE(sweep.due(0));
  sweep.swept(kFound, 0);
  EXPECT_EQ(sweep.next(), emulator::SweepSchedule::kShortest);
  Nanoseconds now = sweep.next();
  for (int i = 0; i < 40; ++i) {
    sweep.swept(kNothing, now);
    EXPECT_LE(sweep.next() - now, emulator::SweepSchedule::kLongest);
    now = sweep.next();
  }
  EXPECT_GT(now, emulator::SweepSchedule::kEager);
  sweep.swept(kNothing, now);
  EXPECT_EQ(sweep.next() - now, emulator::SweepSchedule::kLongest);
  sweep.swept(kFound, now);
  EXPECT_LE(sweep.next() - now, emulator::SweepSchedule::kShortest);
}

TEST(SweepSchedule, drivers_that_answer_each_other_are_looked_at_soon) {
  using emulator::SweepSchedule;
  // Each rings some time after it was interrupted; a doorbell that is found interrupts the other.
  constexpr Nanoseconds kAnswer = 6'000'000;
  static_assert(kAnswer > SweepSchedule::kEager);
  std::array<SweepSchedule, 2> sweeps;
  std::array<Nanoseconds, 2> rings{0, kNever};
  Nanoseconds now = 0;
  unsigned answers = 0;
  while (now < 2'000'000'000) {
    const unsigned at = sweeps[0].next() <= sweeps[1].next() ? 0 : 1;
    now = std::max(now, sweeps[at].next());
    const bool found = rings[at] <= now;
    sweeps[at].swept(found ? kFound : kNothing, now);
    if (!found) continue;
    ++answers;
    rings[at] = kNever;
    rings[1 - at] = now + kAnswer;
    sweeps[1 - at].interrupted(now);
  }
  EXPECT_GT(answers, 2'000'000'000 / (kAnswer + 3 * SweepSchedule::kShortest));
}

TEST(SweepSchedule, looks_at_many_queues_in_pieces_that_leave_time_to_others) {
  using emulator::SweepSchedule;
  constexpr Sweep kPiece{};
  constexpr Sweep kMovedInPiece{.moved = true, .whole = false};
  for (const bool hinted : {false, true}) {
    SweepSchedule sweep;
    const Nanoseconds pause = hinted ? SweepSchedule::kHintedPieces : SweepSchedule::kPieces;
    const Nanoseconds rest = hinted ? SweepSchedule::kHinted : SweepSchedule::kShortest;
    Nanoseconds now = 1'000'000'000;
    for (const Sweep& found : {kPiece, kMovedInPiece, kPiece}) {
      sweep.swept(found, now, hinted);
      EXPECT_GT(sweep.next(), now);
      EXPECT_LE(sweep.next(), now + (found.moved && hinted ? SweepSchedule::kHinted : pause));
      now = sweep.next();
    }
    sweep.swept(kNothing, now, hinted);
    EXPECT_LE(sweep.next() - now, rest) << "a piece had found something";
    now += 100'000'000;
    sweep.swept(kNothing, now, hinted);
    EXPECT_GT(sweep.next() - now, 0);
    sweep.swept(kNothing, sweep.next(), hinted);
    sweep.swept(kNothing, sweep.next(), hinted);
    const Nanoseconds last = sweep.next();
    sweep.swept(kNothing, last, hinted);
    EXPECT_GT(sweep.next() - last, rest) << "what they had found was forgotten";
  }
}

TEST(SweepSchedule, who_rings_by_hints_is_swept_more_rarely_at_once) {
  emulator::SweepSchedule sweep;
  sweep.swept(kFound, 0, true);
  EXPECT_EQ(sweep.next(), emulator::SweepSchedule::kHinted);
  const Nanoseconds now = sweep.next();
  sweep.swept(kNothing, now, true);
  EXPECT_GE(sweep.next() - now, emulator::SweepSchedule::kHinted);
  const Nanoseconds later = sweep.next();
  sweep.swept(kNothing, later, true);
  EXPECT_GE(sweep.next() - later, 2 * emulator::SweepSchedule::kHinted);
}

TEST(SweepSchedule, who_answers_before_he_rings_again_is_not_looked_for_more_rarely) {
  constexpr Nanoseconds kAnswer = 3 * emulator::SweepSchedule::kShortest;
  emulator::SweepSchedule sweep;
  Nanoseconds rung = 0;
  for (Nanoseconds now = 0; now < 100'000'000; now = sweep.next()) {
    const bool found = now >= rung;
    if (found) rung = now + kAnswer;
    sweep.swept(found ? kFound : kNothing, now);
    EXPECT_LE(sweep.next() - now, emulator::SweepSchedule::kShortest) << now;
  }
}

TEST(SweepSchedule, idle_devices_are_swept_together) {
  emulator::SweepSchedule one;
  emulator::SweepSchedule other;
  for (Nanoseconds now = 0; now < 100'000'000; now += 300'000) {
    if (one.due(now)) one.swept(kNothing, now);
    if (other.due(now) && now > 7'000'000) other.swept(kNothing, now);
  }
  EXPECT_EQ(one.next(), other.next());
}

TEST(LogLimit, lets_a_burst_through_and_counts_the_rest_until_the_period_ends) {
  using std::chrono::seconds;
  runtime::LogLimit limit(3, seconds(10));
  const runtime::LogLimit::Clock::time_point start(seconds(100));
  int allowed = 0;
  for (int i = 0; i < 50; ++i) allowed += limit.allow(start) ? 1 : 0;
  EXPECT_EQ(allowed, 3);
  EXPECT_EQ(limit.take_suppressed(), 47U);
  EXPECT_TRUE(limit.allow(start + seconds(10)));
  EXPECT_EQ(limit.take_suppressed(), 0U);
}

}  // namespace
}  // namespace softhca
