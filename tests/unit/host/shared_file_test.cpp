// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/host/memory/shared_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

namespace softhca::shim {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kMiB = 1 << 20;

/// This process as one that shares pages.
class SharedFileTest : public ::testing::Test {
 protected:
  SharedFileTest()
      : memfd_(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING)),
        map_(std::make_shared<ProcessMap>(::getpid())) {
    EXPECT_EQ(::ftruncate(memfd_.get(), 1LL << 40), 0);
    EXPECT_EQ(::fcntl(memfd_.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
    EXPECT_EQ(files_.open(memfd_.get(), map_, file_), 0);
  }

  /// Maps and fills pages; they have a place of their own in the file.
  SharedPiece share(std::uint64_t length) {
    void* const place = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, memfd_.get(),
                               static_cast<off_t>(next_));
    std::memset(place, 1, length);
    const SharedPiece piece{reinterpret_cast<std::uint64_t>(place), length, next_};
    next_ += length;
    file_->appear(std::span(&piece, 1));
    return piece;
  }
  static void unmap(const SharedPiece& piece) {
    ::munmap(reinterpret_cast<void*>(piece.address), piece.length);
  }
  std::uint64_t bytes() const {
    struct stat status {};
    ::fstat(memfd_.get(), &status);
    return static_cast<std::uint64_t>(status.st_blocks) * 512;
  }

  runtime::UniqueFd memfd_;
  std::shared_ptr<const ProcessMap> map_;
  SharedFiles files_;
  std::shared_ptr<SharedFile> file_;
  std::uint64_t next_ = 0;
};

TEST_F(SharedFileTest, PinnedPagesOutliveTheirMapping) {
  const SharedPiece piece = share(kMiB);
  {
    const SharedFile::Pin pin(file_, piece);
    unmap(piece);
    file_->sweep();
    EXPECT_EQ(bytes(), kMiB);
  }
  EXPECT_EQ(bytes(), 0U) << "the last one who had them lets go";
}

TEST_F(SharedFileTest, MappedPagesOutliveTheirPin) {
  const SharedPiece piece = share(kMiB);
  Pins pins;
  pins.emplace_back(file_, piece);
  pins.clear();
  file_->sweep();
  EXPECT_EQ(bytes(), kMiB);
  unmap(piece);
  file_->sweep();
  EXPECT_EQ(bytes(), 0U);
}

TEST_F(SharedFileTest, WhatAPinLetsGoIsLeftToAProcessThatIsToldOfIt) {
  const SharedPiece piece = share(kMiB);
  const SharedPiece large = share(16 * kMiB);
  Pins pins;
  pins.emplace_back(file_, piece);
  unmap(piece);
  unmap(large);
  file_->leave_unused(true);
  pins.clear();
  EXPECT_EQ(bytes(), 0U) << "as much as that the daemon gives back itself";
  const SharedPiece next = share(kMiB);
  pins.emplace_back(file_, next);
  unmap(next);
  pins.clear();
  file_->leave_unused(false);
  const std::vector<FileRange> unused = file_->take_unused();
  ASSERT_EQ(unused.size(), 1U);
  EXPECT_EQ(unused[0].offset, next.offset);
  EXPECT_EQ(bytes(), kMiB);
  file_->sweep();
  EXPECT_EQ(bytes(), 0U) << "whether the process has done it or not";
}

TEST_F(SharedFileTest, PagesPinnedTwiceStayUntilBothPinsEnd) {
  const SharedPiece piece = share(4 * kPage);
  const SharedPiece middle{piece.address + kPage, kPage, piece.offset + kPage};
  Pins whole;
  Pins part;
  whole.emplace_back(file_, piece);
  part.emplace_back(file_, middle);
  unmap(piece);
  whole.clear();
  EXPECT_EQ(bytes(), kPage);
  part.clear();
  EXPECT_EQ(bytes(), 0U);
}

TEST_F(SharedFileTest, MovedMappingsKeepTheirPages) {
  const SharedPiece piece = share(4 * kPage);
  {
    const SharedFile::Pin pin(file_, piece);
    void* const old_place = reinterpret_cast<void*>(piece.address);
    void* const room = ::mmap(nullptr, piece.length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_EQ(::mremap(old_place, piece.length, piece.length, MREMAP_MAYMOVE | MREMAP_FIXED, room),
              room);
    ::mmap(old_place, piece.length, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  }
  EXPECT_EQ(bytes(), 4 * kPage);
}

TEST_F(SharedFileTest, UnmappedPagesAreGivenBackWhileMoreAreShared) {
  for (int round = 0; round < 20; ++round) unmap(share(16 * kMiB));
  EXPECT_LE(bytes(), 64 * kMiB);
}

TEST_F(SharedFileTest, PagesThatPinsLeftMappedAreLookedForWhenMoreAppear) {
  const SharedPiece piece = share(kMiB);
  { const SharedFile::Pin pin(file_, piece); }
  file_->tidy();
  EXPECT_TRUE(file_->take_unused().empty()) << "they are still mapped";
  unmap(piece);
  file_->tidy();
  EXPECT_TRUE(file_->take_unused().empty()) << "nothing has appeared";
  const SharedPiece next = share(kPage);
  file_->tidy();
  const std::vector<FileRange> unused = file_->take_unused();
  ASSERT_EQ(unused.size(), 1U);
  EXPECT_EQ(unused[0].offset, piece.offset);
  EXPECT_EQ(unused[0].length, kMiB);
  EXPECT_TRUE(file_->take_unused().empty());
  EXPECT_EQ(bytes(), kMiB + kPage) << "left to the process";
  file_->sweep();
  EXPECT_EQ(bytes(), kPage) << "whether the process has done it or not";
  unmap(next);
}

TEST_F(SharedFileTest, PagesThatArePinnedAgainAreNotUnused) {
  const SharedPiece piece = share(kMiB);
  { const SharedFile::Pin pin(file_, piece); }
  const SharedFile::Pin again(file_, piece);
  unmap(piece);
  share(kPage);
  file_->tidy();
  EXPECT_TRUE(file_->take_unused().empty());
  file_->sweep();
  EXPECT_EQ(bytes(), kMiB + kPage);
}

TEST_F(SharedFileTest, MuchUnusedMemoryIsGivenBackAtOnce) {
  const SharedPiece piece = share(8 * kMiB);
  { const SharedFile::Pin pin(file_, piece); }
  unmap(piece);
  share(kPage);
  file_->tidy();
  EXPECT_TRUE(file_->take_unused().empty());
  EXPECT_EQ(bytes(), kPage);
}

TEST_F(SharedFileTest, ManyRegionsOfUnmappedMemoryAreNotLookedUpOneByOne) {
  const SharedPiece piece = share(256 * kMiB);
  Pins pins;
  for (std::uint64_t at = 0; at < piece.length; at += kPage) {
    pins.emplace_back(file_, SharedPiece{piece.address + at, kPage, piece.offset + at});
  }
  unmap(piece);
  pins.clear();
  EXPECT_EQ(bytes(), 0U);
}

TEST_F(SharedFileTest, FilesThatMayShrinkAreRefused) {
  const runtime::UniqueFd unsealed(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  std::shared_ptr<SharedFile> file;
  EXPECT_EQ(files_.open(unsealed.get(), map_, file), EINVAL);
  EXPECT_EQ(files_.open(-1, map_, file), EINVAL);
}

TEST(IntervalSet, MergesAndSplits) {
  IntervalSet set;
  set.add(10, 20);
  set.add(30, 40);
  set.add(20, 30);
  EXPECT_EQ(set.count(), 1U);
  EXPECT_EQ(set.total(), 30U);
  set.remove(15, 35);
  EXPECT_EQ(set.count(), 2U);
  EXPECT_EQ(set.total(), 10U);
  set.add(0, 100);
  EXPECT_EQ(set.count(), 1U);
  EXPECT_EQ(set.total(), 100U);
  set.add(50, 60);
  EXPECT_EQ(set.total(), 100U);
  set.remove(0, 100);
  EXPECT_EQ(set.count(), 0U);
}

}  // namespace
}  // namespace softhca::shim
