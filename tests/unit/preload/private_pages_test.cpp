// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/preload/private_pages.h"

#include <memory>
#include <set>

#include <gtest/gtest.h>

namespace softhca::shim::preload {
namespace {

constexpr std::uint64_t kPage = PrivatePages::kPage;
constexpr std::uint64_t kHeap = 0x5581'2345'6000;
constexpr std::uint64_t kMapped = 0x7f12'3456'7000;

std::unique_ptr<PrivatePages> no_pages() {
  return std::make_unique<PrivatePages>();
}

TEST(PrivatePages, ThereAreNoneAtFirst) {
  EXPECT_EQ(no_pages()->find(0, 1ULL << 47), 1ULL << 47);
}

TEST(PrivatePages, NoOtherPagePassesForOneOfThem) {
  const auto pages = no_pages();
  std::set<std::uint64_t> added;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const std::uint64_t page = kHeap + i * i * 3 * kPage;
    pages->add(page);
    pages->add(page);
    added.insert(page);
  }
  constexpr std::uint64_t kEnd = kHeap + 4'000'000 * kPage;
  std::set<std::uint64_t> found;
  for (std::uint64_t at = kHeap - 1000 * kPage; at < kEnd; at += kPage) {
    at = pages->find(at, kEnd);
    if (at < kEnd) found.insert(at);
  }
  EXPECT_EQ(found, added);
  constexpr std::uint64_t kGiB = 1ULL << 30;
  EXPECT_EQ(pages->find(kMapped, kMapped + kGiB), kMapped + kGiB);
}

TEST(PrivatePages, OfARangeTheFirstOneIsFound) {
  const auto pages = no_pages();
  pages->add(kMapped);
  EXPECT_EQ(pages->find(kMapped - 100 * kPage, kMapped), kMapped);
  EXPECT_EQ(pages->find(kMapped, kMapped), kMapped) << "an empty range";
  EXPECT_EQ(pages->find(kMapped - 100 * kPage, kMapped + 100 * kPage), kMapped);
  EXPECT_EQ(pages->find(kMapped, kMapped + kPage), kMapped);
  EXPECT_EQ(pages->find(kMapped + kPage, kMapped + 9 * kPage), kMapped + 9 * kPage);
  pages->add(kMapped - 99 * kPage);
  EXPECT_EQ(pages->find(kMapped - 100 * kPage, kMapped + kPage), kMapped - 99 * kPage);
  EXPECT_EQ(pages->find(kMapped - 98 * kPage, kMapped - 3 * kPage), kMapped - 3 * kPage);
}

TEST(PrivatePages, WhereTheTableIsFullEveryPagePassesForOne) {
  const auto pages = no_pages();
  for (std::uint64_t i = 0; i < PrivatePages::kMostGroups; ++i) pages->add(kHeap + i * 64 * kPage);
  EXPECT_EQ(pages->find(kMapped, kMapped + kPage), kMapped + kPage);
  pages->add(kHeap);
  EXPECT_EQ(pages->find(kMapped, kMapped + kPage), kMapped + kPage);
  pages->add(kHeap - 64 * kPage);
  EXPECT_EQ(pages->find(kMapped, kMapped + kPage), kMapped);
  EXPECT_EQ(pages->find(kHeap - 64 * kPage, kHeap), kHeap - 64 * kPage);
}

}  // namespace
}  // namespace softhca::shim::preload
