// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/device-server/register_access.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "emulator/device-server/log_limiter.h"
#include "tests/support/virtual_time.h"

namespace softhca::emulator::test {
namespace {

using Accesses = std::vector<std::pair<std::uint64_t, std::size_t>>;

Accesses accesses(std::uint64_t offset, std::size_t size) {
  std::vector<std::byte> bytes(size);
  Accesses seen;
  for_each_register(offset, std::span(bytes), [&](std::uint64_t at, std::span<std::byte> part) {
    seen.emplace_back(at, part.size());
  });
  return seen;
}

TEST(RegisterAccess, NaturalAccessesStayWhole) {
  EXPECT_EQ(accesses(0, 8), (Accesses{{0, 8}}));
  EXPECT_EQ(accesses(0x1004, 4), (Accesses{{0x1004, 4}}));
  EXPECT_EQ(accesses(3, 1), (Accesses{{3, 1}}));
}

TEST(RegisterAccess, OthersAreCutToAlignedPieces) {
  EXPECT_EQ(accesses(0x1004, 8), (Accesses{{0x1004, 4}, {0x1008, 4}}));
  EXPECT_EQ(accesses(1, 7), (Accesses{{1, 1}, {2, 2}, {4, 4}}));
  EXPECT_EQ(accesses(0, 7), (Accesses{{0, 4}, {4, 2}, {6, 1}}));
  EXPECT_EQ(accesses(8, 24), (Accesses{{8, 8}, {16, 8}, {24, 8}}));
  EXPECT_EQ(accesses(8, 0), Accesses{});
}

TEST(LogLimiter, AFloodIsCutAndCounted) {
  softhca::test::VirtualClock clock(1);
  std::vector<std::string> lines;
  LogLimiter log([&](const std::string& line) { lines.push_back(line); }, clock);
  for (unsigned i = 0; i < 1000; ++i) log.line("x");
  EXPECT_EQ(lines.size(), LogLimiter::kBurst);
  clock.advance(LogLimiter::kPeriod);
  log.line("y");
  EXPECT_EQ(lines.back(), "y (980 lines left out)");
}

}  // namespace
}  // namespace softhca::emulator::test
