// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/host/memory/iova_allocator.h"

#include <gtest/gtest.h>

namespace softhca::shim {
namespace {

TEST(IovaAllocator, EveryAddressIsFresh) {
  IovaAllocator iovas;
  std::uint64_t end = 0;
  for (int i = 0; i < 1000; ++i) {
    const auto address = iovas.allocate(4096 * (i % 7 + 1), 4096, 0);
    ASSERT_TRUE(address);
    EXPECT_GE(*address, end + (i == 0 ? 0 : 4096)) << "a guard page lies between two ranges";
    end = *address + 4096 * (i % 7 + 1);
  }
}

TEST(IovaAllocator, HonoursAlignmentAndOffset) {
  IovaAllocator iovas;
  for (const std::uint64_t alignment : {1ULL << 12, 1ULL << 21, 1ULL << 30}) {
    const auto address = iovas.allocate(12345, alignment, 0x800);
    ASSERT_TRUE(address);
    EXPECT_EQ(*address % alignment, 0x800U);
  }
}

TEST(IovaAllocator, RefusesEmptyHugeAndExhausted) {
  IovaAllocator iovas;
  EXPECT_FALSE(iovas.allocate(0, 4096, 0));
  EXPECT_FALSE(iovas.allocate(~0ULL, 4096, 0));
  EXPECT_FALSE(iovas.allocate(4096, 4096, 4096));
  EXPECT_TRUE(iovas.allocate(IovaAllocator::kLimit / 2, 4096, 0));
  EXPECT_FALSE(iovas.allocate(IovaAllocator::kLimit / 2, 4096, 0));
}

TEST(IovaAllocator, StopsWhereTheIommuDoes) {
  IovaAllocator iovas;
  iovas.set_end(IovaAllocator::kFirst + 3 * 4096);
  EXPECT_FALSE(iovas.allocate(4 * 4096, 4096, 0));
  EXPECT_TRUE(iovas.allocate(4096, 4096, 0));
  EXPECT_TRUE(iovas.allocate(4096, 4096, 0));
  EXPECT_FALSE(iovas.allocate(4096, 4096, 0));
}

}  // namespace
}  // namespace softhca::shim
