// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/preload/ready_pages.h"

#include <map>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace softhca::shim::preload {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

class ReadyPagesTest : public ::testing::Test {
 protected:
  ReadyPagesTest() : file_(::memfd_create("test", MFD_CLOEXEC)) {
    EXPECT_EQ(::ftruncate(file_, static_cast<off_t>(FileOffsets::kEnd)), 0);
  }
  ~ReadyPagesTest() override { ::close(file_); }

  std::uint64_t bytes() const {
    struct stat status {};
    ::fstat(file_, &status);
    return static_cast<std::uint64_t>(status.st_blocks) * 512;
  }
  /// A region that has been registered and given back.
  void use_up(std::uint64_t length) {
    ready_.take(length);
    ready_.given_back(length);
  }
  void prepare_all() {
    while (ready_.prepare(file_, offsets_)) {
    }
    EXPECT_FALSE(ready_.are_wanted());
  }

  int file_;
  FileOffsets offsets_{};
  ReadyPages ready_{};
};

TEST_F(ReadyPagesTest, NothingIsReadyInAProcessThatHasRegisteredNothing) {
  ready_.given_back(kMiB);
  EXPECT_FALSE(ready_.are_wanted());
  EXPECT_EQ(ready_.take(kMiB), FileOffsets::kEnd);
  EXPECT_FALSE(ready_.are_wanted()) << "nor before anything was given back";
  prepare_all();
  EXPECT_EQ(bytes(), 0U);
}

TEST_F(ReadyPagesTest, OddSizesDoNotAddUp) {
  constexpr std::uint64_t kOdd = 68 << 10;
  const auto register_and_give_back = [this](std::uint64_t length) {
    use_up(length);
    prepare_all();
  };
  register_and_give_back(ReadyPages::kLargest);
  ready_.take(kOdd);
  ready_.take(ReadyPages::kLargest);  // Does not fit.
  ready_.given_back(kOdd);
  prepare_all();
  ready_.given_back(ReadyPages::kLargest);
  prepare_all();
  for (int i = 0; i < 500; ++i) {
    const std::uint64_t taken = ready_.take(kOdd);
    if (taken != FileOffsets::kEnd) {
      ::fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(taken),
                  static_cast<off_t>(kOdd));
    }
    ready_.given_back(kOdd);
    prepare_all();
    ASSERT_LE(bytes(), 2 * ReadyPages::kLargest) << i;
  }
}

TEST_F(ReadyPagesTest, AsMuchAsWasGivenBackIsAllocatedAndTakenOnce) {
  use_up(kMiB);
  EXPECT_TRUE(ready_.are_wanted());
  prepare_all();
  EXPECT_EQ(bytes(), kMiB);
  const std::uint64_t half = ready_.take(kMiB / 2);
  ASSERT_NE(half, FileOffsets::kEnd);
  EXPECT_EQ(ready_.take(kMiB), FileOffsets::kEnd) << "not so much is left";
  EXPECT_EQ(ready_.take(kMiB / 2), half + kMiB / 2);
  EXPECT_EQ(ready_.take(ReadyPages::kSmallest), FileOffsets::kEnd);
  EXPECT_FALSE(ready_.are_wanted());
}

TEST_F(ReadyPagesTest, WhatIsKeptReadyIsBounded) {
  for (int round = 0; round < 100; ++round) use_up(ReadyPages::kLargest);
  ready_.given_back(1ULL << 40);
  prepare_all();
  EXPECT_EQ(bytes(), ReadyPages::kLargest);
  use_up(4 * kMiB);
  ready_.given_back(~0ULL);
  prepare_all();
  EXPECT_EQ(bytes(), ReadyPages::kLargest);
}

TEST_F(ReadyPagesTest, IsNotForSmallAndLargeRegions) {
  use_up(ReadyPages::kSmallest / 2);
  use_up(ReadyPages::kLargest + ReadyPages::kStep);
  EXPECT_FALSE(ready_.are_wanted());
  use_up(ReadyPages::kLargest);
  prepare_all();
  EXPECT_EQ(ready_.take(ReadyPages::kSmallest / 2), FileOffsets::kEnd);
  EXPECT_EQ(ready_.take(ReadyPages::kSmallest + 1), FileOffsets::kEnd);
}

TEST_F(ReadyPagesTest, NoOffsetComesTwice) {
  std::map<std::uint64_t, std::uint64_t> taken;
  const auto note = [&taken](std::uint64_t offset, std::uint64_t length) {
    const auto next = taken.lower_bound(offset);
    if (next != taken.end()) {
      EXPECT_LE(offset + length, next->first);
    }
    if (next != taken.begin()) {
      EXPECT_LE(std::prev(next)->second, offset);
    }
    taken[offset] = offset + length;
  };
  std::uint64_t used = 0;
  for (std::uint64_t round = 0; round < 300; ++round) {
    const std::uint64_t length = ReadyPages::kSmallest + round * 7 % 200 * 4096;
    const std::uint64_t offset = ready_.take(length);
    if (offset != FileOffsets::kEnd) {
      note(offset, length);
      used += length;
    }
    ready_.given_back(length);
    prepare_all();
    const std::uint64_t address = round * FileOffsets::kWindow / 2;
    note(offsets_.take(address, address + kMiB), kMiB);
  }
  EXPECT_GT(used, 2 * FileOffsets::kWindow);
  EXPECT_LE(bytes(), used + ReadyPages::kLargest) << "what is left at the end of a part is freed";
}

TEST_F(ReadyPagesTest, WithoutMemoryThereAreNone) {
  use_up(kMiB);
  EXPECT_FALSE(ready_.prepare(-1, offsets_));
  EXPECT_FALSE(ready_.are_wanted());
  EXPECT_EQ(ready_.take(kMiB), FileOffsets::kEnd);
}

TEST_F(ReadyPagesTest, AnotherFileStartsWithNone) {
  use_up(kMiB);
  prepare_all();
  ready_.forget();
  EXPECT_EQ(ready_.take(kMiB), FileOffsets::kEnd);
}

TEST(FileOffsets, KnowsWhereANeighbourIsJoined) {
  constexpr std::uint64_t kPlace = 5 * FileOffsets::kWindow + kMiB;
  FileOffsets offsets{};
  EXPECT_FALSE(offsets.joins_neighbour(kPlace, kPlace + kMiB));
  const std::uint64_t offset = offsets.take(kPlace, kPlace + kMiB);
  EXPECT_FALSE(offsets.joins_neighbour(kPlace, kPlace + kMiB)) << "it has to move";
  EXPECT_TRUE(offsets.joins_neighbour(kPlace + kMiB, kPlace + 2 * kMiB));
  EXPECT_TRUE(offsets.joins_neighbour(kPlace - kMiB, kPlace));
  EXPECT_FALSE(offsets.joins_neighbour(kPlace + 2 * kMiB, kPlace + 3 * kMiB));
  EXPECT_EQ(offsets.take(kPlace + kMiB, kPlace + 2 * kMiB), offset + kMiB);
}

}  // namespace
}  // namespace softhca::shim::preload
