// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/memory/mkey_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

namespace softhca {
namespace {

constexpr MemoryAccess kAll = MemoryAccess::local_read | MemoryAccess::local_write |
                              MemoryAccess::remote_read | MemoryAccess::remote_write |
                              MemoryAccess::remote_atomic;

class MkeyTableTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kBase = 0x10'0000;
  MkeyTableTest() {
    dma.map({.iova = kBase, .size = memory.size(), .base = memory.data(), .backing = nullptr});
  }
  /// Key for [0x7000'0100, +0x2f00) over scattered or consecutive pages.
  std::uint32_t create(std::vector<std::uint64_t> pages, MkeyAttributes attributes = {}) {
    attributes.variant = 0x5a;
    attributes.pd = 3;
    attributes.access = attributes.access == MemoryAccess::none ? kAll : attributes.access;
    attributes.start = 0x7000'0100;
    attributes.length = 0x2f00;
    attributes.mode = TranslationMode::mtt;
    return *keys.create(attributes, pages) << 8 | 0x5a;
  }
  MemoryStatus check(std::uint32_t key, std::uint64_t va, std::uint64_t length,
                     MemoryAccess access = MemoryAccess::local_read, MemoryContext context = {3}) {
    return keys.check(key, context, va, length, access);
  }

  alignas(4096) std::array<std::byte, 0x8000> memory{};
  DmaSpace dma;
  MkeyTable keys{dma};
};

TEST_F(MkeyTableTest, TheVariantByteIsPartOfTheKey) {
  const auto key = create({kBase, kBase + 0x1000, kBase + 0x2000});
  EXPECT_EQ(check(key, 0x7000'0100, 8), MemoryStatus::ok);
  EXPECT_EQ(check(key ^ 1, 0x7000'0100, 8), MemoryStatus::invalid_key);
  EXPECT_EQ(check(key + 0x100, 0x7000'0100, 8), MemoryStatus::invalid_key);
  EXPECT_EQ(check(0, 0x7000'0100, 8), MemoryStatus::invalid_key);
  EXPECT_EQ(check(0xffffffff, 0x7000'0100, 8), MemoryStatus::invalid_key);
}

TEST_F(MkeyTableTest, BoundsAreCheckedWithoutOverflow) {
  const auto key = create({kBase, kBase + 0x1000, kBase + 0x2000});
  EXPECT_EQ(check(key, 0x7000'0100, 0x2f00), MemoryStatus::ok);
  EXPECT_EQ(check(key, 0x7000'0100, 0x2f01), MemoryStatus::out_of_bounds);
  EXPECT_EQ(check(key, 0x7000'00ff, 1), MemoryStatus::out_of_bounds);
  EXPECT_EQ(check(key, 0x7000'2fff, 1), MemoryStatus::ok);
  EXPECT_EQ(check(key, 0x7000'3000, 1), MemoryStatus::out_of_bounds);
  EXPECT_EQ(check(key, 0x7000'0100, ~0ULL), MemoryStatus::out_of_bounds);
  EXPECT_EQ(check(key, ~0ULL, 2), MemoryStatus::out_of_bounds);
  EXPECT_EQ(check(key, 0, ~0ULL), MemoryStatus::out_of_bounds);
}

TEST_F(MkeyTableTest, LengthZeroPassesWithAnyKey) {
  EXPECT_EQ(check(0xdeadbeef, 0, 0), MemoryStatus::ok);
}

TEST_F(MkeyTableTest, ProtectionDomainQpAndRightsAreChecked) {
  const auto key = create({kBase, kBase + 0x1000, kBase + 0x2000},
                          {.qpn = 9, .access = MemoryAccess::remote_read});
  EXPECT_EQ(check(key, 0x7000'0100, 8, MemoryAccess::remote_read, {4, 9}), MemoryStatus::wrong_pd);
  EXPECT_EQ(check(key, 0x7000'0100, 8, MemoryAccess::remote_read, {3, 8}), MemoryStatus::wrong_pd);
  EXPECT_EQ(check(key, 0x7000'0100, 8, MemoryAccess::remote_read, {3, 9}), MemoryStatus::ok);
  EXPECT_EQ(check(key, 0x7000'0100, 8, MemoryAccess::remote_write, {3, 9}),
            MemoryStatus::not_permitted);
  EXPECT_EQ(check(key, 0x7000'0100, 8, MemoryAccess::remote_atomic, {3, 9}),
            MemoryStatus::not_permitted);
}

TEST_F(MkeyTableTest, ScatteredPagesAreFoundByTheOffsetFromTheFirstPage) {
  const auto key = create({kBase + 0x3000, kBase, kBase + 0x5000});
  std::vector<std::byte> data(0x2f00);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i / 7);
  EXPECT_EQ(keys.write(key, {3}, 0x7000'0100, data.data(), data.size(), MemoryAccess::local_write),
            MemoryStatus::ok);
  EXPECT_TRUE(std::equal(data.begin(), data.begin() + 0xf00, memory.begin() + 0x3100));
  EXPECT_TRUE(std::equal(data.begin() + 0xf00, data.begin() + 0x1f00, memory.begin()));
  EXPECT_TRUE(std::equal(data.begin() + 0x1f00, data.end(), memory.begin() + 0x5000));
  std::vector<std::byte> back(data.size());
  EXPECT_EQ(keys.read(key, {3}, 0x7000'0100, back.data(), back.size(), MemoryAccess::local_read),
            MemoryStatus::ok);
  EXPECT_EQ(back, data);
  MemoryStatus status{};
  EXPECT_EQ(keys.try_span(key, {3}, 0x7000'0ff0, 32, MemoryAccess::local_read, status), nullptr);
  EXPECT_EQ(status, MemoryStatus::ok) << "allowed, only not in one piece";
}

/// What is kept of a key from one access to the next must not open anything.
class KnownKey : public MkeyTableTest {
 protected:
  static constexpr std::uint64_t kStart = 0x7000'0100;
  KnownKey() {
    MemoryStatus status{};
    EXPECT_EQ(keys.try_span(key, {3, 9}, kStart, 8, MemoryAccess::local_read, status),
              memory.data() + 0x100);
  }
  MemoryStatus store(std::uint64_t va, MemoryContext context = {3, 9}) {
    const std::uint64_t word = 0x1122;
    return keys.write_ordered(key, context, va, &word, sizeof word, MemoryAccess::remote_write);
  }
  std::uint32_t key = create({kBase, kBase + 0x1000, kBase + 0x2000}, {.qpn = 9});
};

TEST_F(KnownKey, IsCheckedAsAnyOther) {
  EXPECT_EQ(store(kStart + 0x2ef8), MemoryStatus::ok);
  EXPECT_EQ(store(kStart + 0x2ef9), MemoryStatus::out_of_bounds);
  EXPECT_EQ(store(kStart - 1), MemoryStatus::out_of_bounds);
  EXPECT_EQ(store(~0ULL - 3), MemoryStatus::out_of_bounds);
  EXPECT_EQ(store(kStart, {4, 9}), MemoryStatus::wrong_pd);
  EXPECT_EQ(store(kStart, {3, 8}), MemoryStatus::wrong_pd);
  EXPECT_EQ(check(key ^ 1, kStart, 8, MemoryAccess::local_read, {3, 9}), MemoryStatus::invalid_key);
  const auto reader = create({kBase}, {.access = MemoryAccess::remote_read});
  MemoryStatus status{};
  keys.try_span(reader, {3}, kStart, 8, MemoryAccess::remote_read, status);
  EXPECT_EQ(check(reader, kStart, 8, MemoryAccess::remote_write), MemoryStatus::not_permitted);
}

TEST_F(KnownKey, FollowsTheMemoryThatIsMappedNow) {
  ASSERT_EQ(dma.unmap(kBase, memory.size()), std::errc{});
  EXPECT_EQ(store(kStart), MemoryStatus::dma_fault);
  alignas(4096) std::array<std::byte, 0x8000> other{};
  dma.map({.iova = kBase, .size = other.size(), .base = other.data(), .backing = nullptr});
  EXPECT_EQ(store(kStart), MemoryStatus::ok);
  EXPECT_EQ(other[0x100], std::byte{0x22});
  EXPECT_EQ(memory[0x100], std::byte{0});
}

TEST_F(KnownKey, IsNotWrittenThroughAReadOnlyMapping) {
  ASSERT_EQ(dma.unmap(kBase, memory.size()), std::errc{});
  dma.map({.iova = kBase, .size = memory.size(), .base = memory.data(), .writable = false});
  MemoryStatus status{};
  EXPECT_NE(keys.try_span(key, {3, 9}, kStart, 8, MemoryAccess::remote_read, status), nullptr);
  EXPECT_EQ(store(kStart), MemoryStatus::dma_fault);
}

TEST_F(KnownKey, IsGoneWhenItIsDestroyed) {
  ASSERT_TRUE(keys.destroy(key >> 8));
  EXPECT_EQ(store(kStart), MemoryStatus::invalid_key);
}

TEST_F(MkeyTableTest, AnyPageSizeWorks) {
  for (const std::uint8_t log_page_size : {6, 12, 13, 14}) {
    MkeyAttributes attributes{.pd = 3, .access = kAll, .start = 0x40, .length = 0x3000};
    attributes.mode = TranslationMode::mtt;
    attributes.log_page_size = log_page_size;
    std::vector<std::uint64_t> pages;
    // The first page is the one that holds the start address.
    const std::uint64_t first = 0x40 & ~((1ULL << log_page_size) - 1);
    for (std::uint64_t at = first; at < 0x3040; at += 1ULL << log_page_size)
      pages.push_back(kBase + at);
    const auto key = *keys.create(attributes, pages) << 8;
    const std::byte value{log_page_size};
    EXPECT_EQ(keys.write(key, {3}, 0x2fff, &value, 1, MemoryAccess::local_write), MemoryStatus::ok);
    EXPECT_EQ(memory[0x2fff], value);
  }
}

TEST_F(MkeyTableTest, ConsecutivePagesTakeNoTable) {
  const PageTable table(std::array<std::uint64_t, 3>{0x1000, 0x2000, 0x3000}, 12);
  EXPECT_TRUE(table.contiguous());
  std::uint64_t length = 0x5000;
  EXPECT_EQ(table.translate(0x800, length), 0x1800U);
  EXPECT_EQ(length, 0x2800U);
}

TEST_F(MkeyTableTest, ATableShorterThanTheRegionIsOutOfBounds) {
  const auto key = create({kBase});
  EXPECT_EQ(check(key, 0x7000'0100, 0xf00), MemoryStatus::ok);
  EXPECT_EQ(check(key, 0x7000'0100, 0xf01), MemoryStatus::out_of_bounds);
  EXPECT_EQ(check(create({}), 0x7000'0100, 1), MemoryStatus::out_of_bounds);
}

TEST_F(MkeyTableTest, PhysicalKeysWithLength64CoverEverythingMapped) {
  MkeyAttributes attributes{.pd = 3, .access = kAll, .length64 = true};
  const auto key = *keys.create(attributes, {}) << 8;
  std::uint64_t word = 0x1122334455667788;
  EXPECT_EQ(keys.write(key, {3}, kBase + 8, &word, 8, MemoryAccess::local_write), MemoryStatus::ok);
  EXPECT_EQ(memory[8], std::byte{0x88});
  EXPECT_EQ(keys.write(key, {3}, 0, &word, 8, MemoryAccess::local_write), MemoryStatus::dma_fault);
  EXPECT_EQ(keys.write(key, {3}, ~0ULL - 3, &word, 8, MemoryAccess::local_write),
            MemoryStatus::dma_fault);
}

TEST_F(MkeyTableTest, TheReservedLkeyIsForPrivilegedQpsAndLocalAccess) {
  keys.set_reserved_lkey(0x700);
  EXPECT_EQ(check(0x700, kBase, 8, MemoryAccess::local_write), MemoryStatus::invalid_key);
  const MemoryContext privileged{3, 1, true};
  EXPECT_EQ(check(0x700, kBase, 8, MemoryAccess::local_write, privileged), MemoryStatus::ok);
  EXPECT_EQ(check(0x700, kBase, 8, MemoryAccess::remote_write, privileged),
            MemoryStatus::not_permitted);
}

TEST_F(MkeyTableTest, InvalidatedAndDestroyedKeysAreGone) {
  const auto key = create({kBase, kBase + 0x1000, kBase + 0x2000});
  EXPECT_EQ(keys.invalidate(key, {3}), MemoryStatus::not_permitted);
  keys.find(key >> 8)->attributes.remote_invalidate = true;
  EXPECT_EQ(keys.invalidate(key, {4}), MemoryStatus::wrong_pd);
  EXPECT_EQ(keys.invalidate(key, {3}), MemoryStatus::ok);
  EXPECT_EQ(check(key, 0x7000'0100, 8), MemoryStatus::invalid_key);
  EXPECT_EQ(keys.invalidate(key, {3}), MemoryStatus::invalid_key);
  EXPECT_TRUE(keys.destroy(key >> 8));
  EXPECT_FALSE(keys.destroy(key >> 8));
  EXPECT_EQ(keys.size(), 0U);
  EXPECT_NE(create({kBase}) >> 8, key >> 8) << "an index is not used again at once";
}

TEST_F(MkeyTableTest, IndexesRunOutAndComeBack) {
  MkeyTable small(dma, 1, 3);
  EXPECT_TRUE(small.create({}, {}).has_value());
  const auto second = small.create({}, {});
  EXPECT_FALSE(small.create({}, {}).has_value());
  small.destroy(*second);
  EXPECT_EQ(small.create({}, {}), second);
}

TEST_F(MkeyTableTest, AnIndexThatWasGivenBackCanBeAskedFor) {
  MkeyTable keys(dma, 1, 100);
  const auto first = keys.create({}, {});
  const auto second = keys.create({}, {});
  EXPECT_FALSE(keys.create_at(*first, {}, {})) << "in use";
  EXPECT_FALSE(keys.create_at(50, {}, {})) << "never handed out";
  keys.destroy(*first);
  keys.destroy(*second);
  EXPECT_TRUE(keys.create_at(*first, {}, {}));
  EXPECT_NE(keys.find(*first), nullptr);
  EXPECT_EQ(keys.find(*second), nullptr);
}

TEST_F(MkeyTableTest, ThePageTablesOfAllKeysAreBounded) {
  MkeyTable small(dma, 1, 100, /*max_page_entries=*/5);
  const MkeyAttributes attributes{.mode = TranslationMode::mtt};
  const std::vector<std::uint64_t> scattered{kBase, kBase + 0x2000, kBase + 0x1000};
  const std::vector<std::uint64_t> consecutive{kBase, kBase + 0x1000, kBase + 0x2000};
  const auto first = small.create(attributes, scattered);
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(small.page_entries(), 3U);
  EXPECT_FALSE(small.create(attributes, scattered).has_value());
  EXPECT_TRUE(small.create(attributes, consecutive).has_value()) << "takes no table";
  EXPECT_EQ(small.page_entries(), 3U);
  ASSERT_TRUE(small.destroy(*first));
  EXPECT_EQ(small.page_entries(), 0U);
  EXPECT_TRUE(small.create_at(*first, attributes, scattered));
  EXPECT_EQ(small.page_entries(), 3U);
  small.clear();
  EXPECT_EQ(small.page_entries(), 0U);
}

}  // namespace
}  // namespace softhca
