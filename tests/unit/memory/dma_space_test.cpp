// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/memory/dma_space.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace softhca {
namespace {

class Backing final : public DmaBacking {
 public:
  DmaStatus read(std::uint64_t offset, void* to, std::size_t length) override {
    if (pending) return DmaStatus::pending;
    std::memcpy(to, bytes.data() + offset, length);
    return DmaStatus::ok;
  }
  DmaStatus write(std::uint64_t offset, const void* from, std::size_t length) override {
    if (pending) return DmaStatus::pending;
    lengths.push_back(length);
    std::memcpy(bytes.data() + offset, from, length);
    return DmaStatus::ok;
  }
  std::vector<std::byte> bytes = std::vector<std::byte>(8192);
  std::vector<std::size_t> lengths;
  bool pending = false;
};

class DmaSpaceTest : public ::testing::Test {
 protected:
  std::errc map(std::uint64_t iova, std::uint64_t size, std::size_t offset = 0) {
    return dma.map(
        {.iova = iova, .size = size, .base = memory.data() + offset, .backing = nullptr});
  }
  alignas(64) std::array<std::byte, 16384> memory{};
  DmaSpace dma;
};

TEST_F(DmaSpaceTest, EmptyWrappingAndUnreachableRangesAreInvalid) {
  EXPECT_EQ(map(0x1000, 0), std::errc::invalid_argument);
  EXPECT_EQ(map(~0ULL - 100, 4096), std::errc::invalid_argument);
  EXPECT_EQ(dma.map({.iova = 0x1000, .size = 4096}), std::errc::invalid_argument);
  EXPECT_EQ(dma.range_count(), 0U);
}

TEST_F(DmaSpaceTest, OverlappingRangesAreRefused) {
  EXPECT_EQ(map(0x2000, 0x1000), std::errc{});
  EXPECT_EQ(map(0x2000, 0x1000), std::errc::file_exists);
  EXPECT_EQ(map(0x1000, 0x1001), std::errc::file_exists);
  EXPECT_EQ(map(0x2fff, 1), std::errc::file_exists);
  EXPECT_EQ(map(0x1000, 0x1000), std::errc{});
  EXPECT_EQ(map(0x3000, 0x1000), std::errc{});
}

TEST_F(DmaSpaceTest, UnmapTakesWholeRangesOnly) {
  map(0x1000, 0x1000);
  map(0x2000, 0x1000, 0x1000);
  EXPECT_EQ(dma.unmap(0x1800, 0x1000), std::errc::invalid_argument);
  EXPECT_EQ(dma.unmap(0x1000, 0x1800), std::errc::invalid_argument);
  EXPECT_EQ(dma.unmap(0x5000, 0x1000), std::errc::no_such_file_or_directory);
  EXPECT_EQ(dma.unmap(0x1000, 0), std::errc::invalid_argument);
  EXPECT_EQ(dma.unmap(~0ULL - 4095, 8192), std::errc::invalid_argument);
  EXPECT_EQ(dma.range_count(), 2U);
  EXPECT_EQ(dma.unmap(0x1000, 0x2000), std::errc{}) << "several whole ranges at once";
  EXPECT_EQ(dma.range_count(), 0U);
}

TEST_F(DmaSpaceTest, UnmappedMemoryIsForgottenThoughItWasJustUsed) {
  map(0x1000, 0x1000);
  ASSERT_NE(dma.try_span(0x1000, 8, DmaAccess::read), nullptr);
  const auto generation = dma.generation();
  dma.unmap(0x1000, 0x1000);
  EXPECT_NE(dma.generation(), generation);
  EXPECT_EQ(dma.try_span(0x1000, 8, DmaAccess::read), nullptr);
  std::byte byte{};
  EXPECT_EQ(dma.read(0x1000, &byte, 1), DmaStatus::fault);
}

TEST_F(DmaSpaceTest, ASpanLiesInOneRangeThatAllowsIt) {
  map(0x1000, 0x1000);
  map(0x2000, 0x1000, 0x1000);
  dma.map({.iova = 0x3000,
           .size = 0x1000,
           .base = memory.data(),
           .backing = nullptr,
           .writable = false});
  EXPECT_EQ(dma.try_span(0x1ff8, 8, DmaAccess::write), memory.data() + 0xff8);
  EXPECT_EQ(dma.try_span(0x1ff8, 9, DmaAccess::write), nullptr) << "crosses a border";
  EXPECT_EQ(dma.try_span(0x1000, ~0ULL, DmaAccess::read), nullptr);
  EXPECT_NE(dma.try_span(0x3000, 8, DmaAccess::read), nullptr);
  EXPECT_EQ(dma.try_span(0x3000, 8, DmaAccess::write), nullptr);
}

TEST_F(DmaSpaceTest, CopiesGoAcrossBordersAndAFaultChangesNothing) {
  map(0x1000, 0x1000);
  map(0x2000, 0x1000, 0x1000);
  std::vector<std::byte> data(0x1800, std::byte{7});
  EXPECT_EQ(dma.write(0x1400, data.data(), data.size()), DmaStatus::ok);
  std::vector<std::byte> back(data.size());
  EXPECT_EQ(dma.read(0x1400, back.data(), back.size()), DmaStatus::ok);
  EXPECT_EQ(back, data);
  std::fill(data.begin(), data.end(), std::byte{9});
  EXPECT_EQ(dma.write(0x2400, data.data(), data.size()), DmaStatus::fault);
  EXPECT_EQ(memory[0x1400], std::byte{7}) << "the part that is mapped was written";
  EXPECT_EQ(dma.write(~0ULL - 4, data.data(), 100), DmaStatus::fault);
}

TEST_F(DmaSpaceTest, OrderedWritesPutTheLastCacheLineLast) {
  auto backing = std::make_shared<Backing>();
  dma.map({.iova = 0x1000, .size = 0x2000, .base = nullptr, .backing = backing});
  std::vector<std::byte> data(200, std::byte{5});
  EXPECT_EQ(dma.write_ordered(0x1020, data.data(), data.size()), DmaStatus::ok);
  // 0x1020 + 200 = 0x10e8: the last line begins at 0x10c0.
  EXPECT_EQ(backing->lengths, (std::vector<std::size_t>{160, 40}));
  map(0x8000, 0x1000);
  for (std::uint64_t start = 0; start < 16; ++start) {
    for (std::uint64_t length = 0; length < 150; ++length) {
      std::fill(memory.begin(), memory.end(), std::byte{0});
      ASSERT_EQ(dma.write_ordered(0x8000 + start, data.data(), length), DmaStatus::ok);
      ASSERT_EQ(std::count(memory.begin(), memory.end(), std::byte{5}),
                static_cast<std::ptrdiff_t>(length));
    }
  }
}

TEST_F(DmaSpaceTest, PendingMemoryIsReportedAsSuch) {
  auto backing = std::make_shared<Backing>();
  backing->pending = true;
  dma.map({.iova = 0x1000, .size = 0x1000, .base = nullptr, .backing = backing});
  std::uint32_t word = 0;
  EXPECT_EQ(dma.load_be32(0x1000, word), DmaStatus::pending);
  EXPECT_EQ(dma.write_ordered(0x1000, &word, 4), DmaStatus::pending);
  EXPECT_EQ(dma.check(0x1000, 0x1000, DmaAccess::write), DmaStatus::ok);
}

TEST_F(DmaSpaceTest, DoorbellWordsAreBigEndianAndAligned) {
  map(0x1000, 0x1000);
  memory[4] = std::byte{0x12};
  memory[7] = std::byte{0x34};
  std::uint32_t word = 0;
  EXPECT_EQ(dma.load_be32(0x1004, word), DmaStatus::ok);
  EXPECT_EQ(word, 0x12000034U);
  EXPECT_EQ(dma.load_be32(0x1005, word), DmaStatus::fault);
}

}  // namespace
}  // namespace softhca
