// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <set>
#include <utility>
#include <vector>

#include "provider/pages.h"

namespace softhca::provider {
namespace {

TEST(QueuePages, AreWholeZeroedPages) {
  QueuePages pages;
  ASSERT_TRUE(pages.allocate(5000, {}, AllocationType::qp));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pages.data()) % 4096, 0U);
  EXPECT_EQ(pages.size(), 8192U);
  EXPECT_TRUE(
      std::all_of(pages.data(), pages.data() + pages.size(), [](auto byte) { return byte == 0; }));
}

TEST(QueuePages, AbsurdSizesAreRefused) {
  QueuePages pages;
  EXPECT_FALSE(pages.allocate(0, {}, AllocationType::qp));
  EXPECT_FALSE(pages.allocate(SIZE_MAX, {}, AllocationType::qp));
  EXPECT_EQ(errno, EINVAL);
}

struct Counts {
  int allocated = 0;
  int released = 0;
};
void* counting_allocate(ibv_pd*, void* context, std::size_t size, std::size_t alignment,
                        std::uint64_t) {
  ++static_cast<Counts*>(context)->allocated;
  void* memory = nullptr;
  return posix_memalign(&memory, alignment, size) == 0 ? memory : nullptr;
}
void* default_allocate(ibv_pd*, void*, std::size_t, std::size_t, std::uint64_t) {
  return IBV_ALLOCATOR_USE_DEFAULT;
}
void* failing_allocate(ibv_pd*, void*, std::size_t, std::size_t, std::uint64_t) {
  return nullptr;
}
void counting_release(ibv_pd*, void* context, void* pointer, std::uint64_t) {
  ++static_cast<Counts*>(context)->released;
  std::free(pointer);
}

TEST(QueuePages, ParentDomainAllocatorIsUsedAndGivenItsMemoryBack) {
  Counts counts;
  const CustomAllocator allocator{nullptr, &counts, counting_allocate, counting_release};
  {
    QueuePages pages;
    ASSERT_TRUE(pages.allocate(100, allocator, AllocationType::cq));
    QueuePages moved = std::move(pages);
    EXPECT_EQ(counts.allocated, 1);
    EXPECT_EQ(counts.released, 0);
  }
  EXPECT_EQ(counts.released, 1);
}

TEST(QueuePages, ParentDomainAllocatorMayDecline) {
  Counts counts;
  const CustomAllocator allocator{nullptr, &counts, default_allocate, counting_release};
  {
    QueuePages pages;
    EXPECT_TRUE(pages.allocate(100, allocator, AllocationType::cq));
  }
  EXPECT_EQ(counts.released, 0);
  const CustomAllocator failing{nullptr, &counts, failing_allocate, counting_release};
  QueuePages pages;
  EXPECT_FALSE(pages.allocate(100, failing, AllocationType::cq));
  EXPECT_EQ(errno, ENOMEM);
}

TEST(DoorbellRecords, EachHasACacheLineOfItsOwn) {
  DoorbellRecords records;
  std::set<std::uintptr_t> lines;
  std::vector<prm::Be32*> all;
  for (int i = 0; i < 200; ++i) {
    prm::Be32* record = records.allocate();
    ASSERT_NE(record, nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(record) % DoorbellRecords::kSlot, 0U);
    EXPECT_TRUE(lines.insert(reinterpret_cast<std::uintptr_t>(record)).second);
    all.push_back(record);
  }
  all[7]->set(5);
  records.release(all[7]);
  prm::Be32* again = records.allocate();
  EXPECT_EQ(again[0].get(), 0U);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i != 7) records.release(all[i]);
  }
}

}  // namespace
}  // namespace softhca::provider
