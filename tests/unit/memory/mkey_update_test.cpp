// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/memory/mkey_update.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "hw-model/memory/mkey_table.h"
#include "tests/support/umr_request.h"

// Keys that work requests change, and keys that name other keys.
namespace softhca {
namespace {

using prm::UmrMask;
using transport_test::klm_list;
using transport_test::KlmSpec;
using transport_test::page_list;

constexpr std::uint64_t kPage = 4096;
constexpr MemoryAccess kLocal = MemoryAccess::local_read | MemoryAccess::local_write;
constexpr MemoryAccess kRemote = MemoryAccess::remote_read | MemoryAccess::remote_write;
constexpr std::uint64_t kRegister =
    UmrMask::length | UmrMask::start_address | UmrMask::page_size | UmrMask::key | UmrMask::free |
    UmrMask::local_read | UmrMask::local_write | UmrMask::remote_read | UmrMask::remote_write;

class MkeyUpdateTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kBase = 0x10'0000;
  static constexpr std::uint32_t kPd = 3;

  MkeyUpdateTest() {
    std::iota(memory.begin(), memory.end(), std::uint8_t{1});
    dma.map({.iova = kBase,
             .size = memory.size(),
             .base = reinterpret_cast<std::byte*>(memory.data()),
             .backing = nullptr});
  }
  std::uint32_t free_key(TranslationMode mode, std::uint32_t capacity, std::uint32_t pd = kPd) {
    MkeyAttributes attributes;
    attributes.pd = pd;
    attributes.mode = mode;
    attributes.free = true;
    attributes.umr_enabled = true;
    attributes.capacity = capacity;
    return *keys.create(attributes, {}) << 8;
  }
  /// A valid key of pages, variant 1, with every right.
  std::uint32_t memory_key(std::uint64_t start, std::uint64_t length, std::uint32_t pd = kPd,
                           MemoryAccess access = kLocal) {
    MkeyAttributes attributes;
    attributes.variant = 1;
    attributes.pd = pd;
    attributes.mode = TranslationMode::mtt;
    attributes.access = access;
    attributes.start = start;
    attributes.length = length;
    std::vector<std::uint64_t> pages;
    for (std::uint64_t at = start & ~(kPage - 1); at < start + length; at += kPage) {
      pages.push_back(at);
    }
    return *keys.create(attributes, pages) << 8 | 1;
  }
  static MkeyUpdate register_range(std::uint64_t start, std::uint64_t length,
                                   std::uint8_t variant = 1) {
    MkeyUpdate update;
    update.expect = MkeyUpdate::Expect::free;
    update.fields = kRegister;
    update.to.variant = variant;
    update.to.start = start;
    update.to.length = length;
    update.to.access = kLocal | kRemote;
    return update;
  }
  MemoryStatus apply(std::uint32_t key, const MkeyUpdate& update) {
    return keys.update(key, owner, update);
  }
  std::vector<std::uint8_t> read(std::uint32_t key, std::uint64_t va, std::size_t length,
                                 MemoryStatus expected = MemoryStatus::ok) {
    std::vector<std::uint8_t> bytes(length);
    EXPECT_EQ(keys.read(key, owner, va, bytes.data(), length, MemoryAccess::remote_read), expected);
    return bytes;
  }
  std::uint8_t byte_at(std::uint64_t iova) const { return memory[iova - kBase]; }

  std::vector<std::uint8_t> memory = std::vector<std::uint8_t>(16 * kPage);
  DmaSpace dma;
  MkeyTable keys{dma, 1, 1U << 24, 1 << 16};
  MemoryContext owner{.pd = kPd, .qpn = 0x50, .fast_registration = true};
};

TEST_F(MkeyUpdateTest, AFreeKeyBecomesValidWithItsPages) {
  const auto key = free_key(TranslationMode::mtt, 2);
  const std::array pages{kBase + 5 * kPage, kBase + 2 * kPage};
  const auto list = page_list(pages);
  auto update = register_range(0x7000'0800, 4096, 9);
  update.list = list;
  ASSERT_EQ(apply(key, update), MemoryStatus::ok);
  const auto bytes = read(key | 9, 0x7000'0800, 4096);
  EXPECT_EQ(bytes.front(), byte_at(kBase + 5 * kPage + 0x800));
  EXPECT_EQ(bytes.back(), byte_at(kBase + 2 * kPage + 0x7ff));
  read(key, 0x7000'0800, 8, MemoryStatus::invalid_key);
  read(key | 9, 0x7000'0800 + 4096, 1, MemoryStatus::out_of_bounds);
}

TEST_F(MkeyUpdateTest, TheStateIsCheckedWhereTheRequestAsksForIt) {
  const auto key = free_key(TranslationMode::mtt, 2);
  auto update = register_range(0, 8);
  update.expect = MkeyUpdate::Expect::valid;
  EXPECT_EQ(apply(key, update), MemoryStatus::not_permitted);
  update.expect = MkeyUpdate::Expect::free;
  EXPECT_EQ(apply(key, update), MemoryStatus::ok);
  EXPECT_EQ(apply(key, update), MemoryStatus::not_permitted) << "it is not free any more";
}

TEST_F(MkeyUpdateTest, FreeingTakesTheTranslationAwayAndMayBeRepeated) {
  const auto key = free_key(TranslationMode::mtt, 4);
  const std::array pages{kBase, kBase + 2 * kPage, kBase + 4 * kPage, kBase + 6 * kPage};
  const auto list = page_list(pages);
  auto update = register_range(0x1000, 4 * kPage);
  update.list = list;
  ASSERT_EQ(apply(key, update), MemoryStatus::ok);
  EXPECT_EQ(keys.page_entries(), 4U);
  MkeyUpdate release;
  release.fields = UmrMask::free;
  release.to.free = true;
  EXPECT_EQ(apply(key | 2, release), MemoryStatus::invalid_key) << "another variant of the key";
  EXPECT_EQ(apply(key | 1, release), MemoryStatus::ok);
  EXPECT_EQ(keys.page_entries(), 0U);
  read(key | 1, 0x1000, 8, MemoryStatus::invalid_key);
  EXPECT_EQ(apply(key | 1, release), MemoryStatus::ok);
  update.list = {};
  EXPECT_EQ(apply(key | 1, update), MemoryStatus::ok);
  read(key | 1, 0x1000, 8, MemoryStatus::out_of_bounds);
}

TEST_F(MkeyUpdateTest, WhatWasKnownOfTheMemoryEndsWithTheUpdate) {
  const auto key = free_key(TranslationMode::mtt, 2);
  const auto first = page_list(std::array{kBase, kBase + kPage});
  auto update = register_range(0x1000, 2 * kPage);
  update.list = first;
  ASSERT_EQ(apply(key, update), MemoryStatus::ok);
  EXPECT_EQ(read(key | 1, 0x1000, 1).front(), byte_at(kBase));
  update.expect = MkeyUpdate::Expect::anything;
  const auto second = page_list(std::array{kBase + 3 * kPage, kBase + 4 * kPage});
  update.list = second;
  update.to.start = 0x2000;
  ASSERT_EQ(apply(key | 1, update), MemoryStatus::ok);
  EXPECT_EQ(read(key | 1, 0x2000, 1).front(), byte_at(kBase + 3 * kPage));
  read(key | 1, 0x1000, 1, MemoryStatus::out_of_bounds);
}

TEST_F(MkeyUpdateTest, AListComesInPartsAndTheLastOneMakesTheKeyValid) {
  constexpr unsigned kPages = 32;
  const auto key = free_key(TranslationMode::mtt, kPages / 2);
  std::vector<std::uint64_t> pages(kPages);
  for (unsigned i = 0; i < kPages; ++i) pages[i] = kBase + (i * 7 % 16) * kPage;
  const auto list = page_list(pages);
  for (unsigned part = 0; part < 4; ++part) {
    MkeyUpdate update = part == 3 ? register_range(0, kPages * kPage) : MkeyUpdate{};
    update.list = std::span(list).subspan(part * 64, 64);
    update.list_offset = part * 4;
    ASSERT_EQ(apply(key, update), MemoryStatus::ok);
  }
  for (unsigned i = 0; i < kPages; ++i) {
    EXPECT_EQ(read(key | 1, i * kPage + 5, 1)[0], byte_at(pages[i] + 5)) << "page " << i;
  }
}

TEST_F(MkeyUpdateTest, ConsecutivePagesTakeNoTableHoweverTheyCome) {
  const auto key = free_key(TranslationMode::mtt, 8);
  std::vector<std::uint64_t> pages(16);
  for (unsigned i = 0; i < 16; ++i) pages[i] = kBase + i * kPage;
  const auto list = page_list(pages);
  for (unsigned part = 0; part < 2; ++part) {
    MkeyUpdate update = part == 1 ? register_range(0, 16 * kPage) : MkeyUpdate{};
    update.list = std::span(list).subspan(part * 64, 64);
    update.list_offset = part * 4;
    ASSERT_EQ(apply(key, update), MemoryStatus::ok);
  }
  EXPECT_EQ(keys.page_entries(), 0U);
  // One page moves, and comes back.
  std::array<std::uint64_t, 2> two{kBase + 9 * kPage, kBase + 3 * kPage};
  MkeyUpdate change;
  auto part = page_list(two);
  change.list = part;
  change.list_offset = 1;
  ASSERT_EQ(apply(key | 1, change), MemoryStatus::ok);
  EXPECT_EQ(keys.page_entries(), 16U);
  EXPECT_EQ(read(key | 1, 2 * kPage, 1)[0], byte_at(kBase + 9 * kPage));
  EXPECT_EQ(read(key | 1, 15 * kPage, 1)[0], byte_at(kBase + 15 * kPage));
  two = {kBase + 2 * kPage, kBase + 3 * kPage};
  part = page_list(two);
  change.list = part;
  ASSERT_EQ(apply(key | 1, change), MemoryStatus::ok);
  EXPECT_EQ(keys.page_entries(), 0U);
}

TEST_F(MkeyUpdateTest, ThePageSizeMayChangeWithTheLastPart) {
  const auto key = free_key(TranslationMode::mtt, 8);
  const std::array pages{kBase + 4 * kPage, kBase};
  const auto list = page_list(pages);
  MkeyUpdate first;
  first.list = list;
  ASSERT_EQ(apply(key, first), MemoryStatus::ok);
  auto last = register_range(0, 8 * kPage);
  last.to.log_page_size = 14;
  ASSERT_EQ(apply(key, last), MemoryStatus::ok);
  EXPECT_EQ(read(key | 1, 3 * kPage + 1, 1)[0], byte_at(kBase + 7 * kPage + 1));
  EXPECT_EQ(read(key | 1, 4 * kPage + 1, 1)[0], byte_at(kBase + 1));
  last.expect = MkeyUpdate::Expect::anything;
  last.to.log_page_size = 11;
  EXPECT_EQ(apply(key | 1, last), MemoryStatus::not_permitted) << "no page is so small";
}

TEST_F(MkeyUpdateTest, AnEntryWithoutRightsLeadsNowhere) {
  const auto key = free_key(TranslationMode::mtt, 2);
  const std::array pages{kBase, kBase + 2 * kPage};
  auto list = page_list(pages);
  list[7] = 0;
  auto update = register_range(0, 2 * kPage);
  update.list = list;
  ASSERT_EQ(apply(key, update), MemoryStatus::ok);
  read(key | 1, 0, 8, MemoryStatus::dma_fault);
  read(key | 1, kPage, 8);
}

TEST_F(MkeyUpdateTest, AListBeyondTheTableChangesNothing) {
  const auto key = free_key(TranslationMode::mtt, 5);
  const std::vector<std::uint8_t> list(64);
  MkeyUpdate update;
  update.list = list;
  update.list_offset = 4;
  EXPECT_EQ(apply(key, update), MemoryStatus::ok) << "a table has room for whole blocks";
  update.list_offset = 5;
  EXPECT_EQ(apply(key, update), MemoryStatus::out_of_bounds);
  update.list_offset = ~0ULL;
  EXPECT_EQ(apply(key, update), MemoryStatus::out_of_bounds);
  update.list_offset = (1ULL << 48) - 1;
  EXPECT_EQ(apply(key, update), MemoryStatus::out_of_bounds);
}

TEST_F(MkeyUpdateTest, TablesOfAllKeysTogetherAreBounded) {
  const auto key = free_key(TranslationMode::mtt, 1 << 20);
  const std::array pages{kBase, kBase + 5 * kPage};
  const auto list = page_list(pages);
  MkeyUpdate update;
  update.list = list;
  update.list_offset = (1 << 15) - 1;
  EXPECT_EQ(apply(key, update), MemoryStatus::ok);
  EXPECT_EQ(keys.page_entries(), 1U << 16);
  const auto other = free_key(TranslationMode::klm, 4);
  MkeyUpdate piece;
  const std::array pieces{KlmSpec{kBase, 1, 8}};
  const auto klms = klm_list(pieces);
  piece.list = klms;
  EXPECT_EQ(apply(other, piece), MemoryStatus::out_of_bounds);
  update.list_offset = 1 << 15;
  EXPECT_EQ(apply(key, update), MemoryStatus::out_of_bounds);
}

TEST_F(MkeyUpdateTest, OnlyKeysForUmrCanBeChanged) {
  const auto key = memory_key(kBase, kPage);
  MkeyUpdate update;
  update.fields = UmrMask::remote_write;
  EXPECT_EQ(apply(key, update), MemoryStatus::not_permitted);
  EXPECT_EQ(apply(0x00ffff00, update), MemoryStatus::invalid_key);
  EXPECT_EQ(apply(0, update), MemoryStatus::invalid_key);
}

TEST_F(MkeyUpdateTest, SignaturesAreRefused) {
  const auto key = free_key(TranslationMode::klm, 4);
  MkeyUpdate update = register_range(0, 8);
  update.fields |= UmrMask::bsf_enable;
  EXPECT_EQ(apply(key, update), MemoryStatus::not_permitted);
}

TEST_F(MkeyUpdateTest, AQpReachesOnlyKeysOfItsDomainAndCannotMoveThem) {
  const auto key = free_key(TranslationMode::mtt, 2, kPd + 1);
  EXPECT_EQ(apply(key, register_range(0, 8)), MemoryStatus::wrong_pd);
  const auto own = free_key(TranslationMode::mtt, 2);
  auto update = register_range(0, 8);
  update.fields |= UmrMask::pd;
  update.to.pd = kPd + 1;
  EXPECT_EQ(apply(own, update), MemoryStatus::wrong_pd);
  update.to.pd = kPd;
  EXPECT_EQ(apply(own, update), MemoryStatus::ok);
}

TEST_F(MkeyUpdateTest, ARegistrationQpMovesKeysBetweenDomains) {
  struct Domains final : ProtectionDomainUse {
    bool move_key(std::uint32_t, std::uint32_t pd) override {
      last = pd;
      return pd != 99;
    }
    std::uint32_t last = 0;
  } domains;
  keys.set_pd_use(&domains);
  const MemoryContext kernel{.pd = 0, .qpn = 1, .any_pd = true};
  const auto key = free_key(TranslationMode::mtt, 2, 0);
  const std::array pages{kBase, kBase + kPage};
  const auto list = page_list(pages);
  auto update = register_range(0, 8);
  update.fields |= UmrMask::pd;
  update.to.pd = kPd;
  update.list = list;
  ASSERT_EQ(keys.update(key, kernel, update), MemoryStatus::ok);
  EXPECT_EQ(domains.last, kPd);
  read(key | 1, 0, 8);
  MkeyUpdate revoke;
  revoke.fields = UmrMask::pd | UmrMask::free;
  revoke.to.free = true;
  revoke.to.pd = 99;
  EXPECT_EQ(keys.update(key | 1, kernel, revoke), MemoryStatus::wrong_pd) << "no such domain";
  read(key | 1, 0, 8);
}

TEST_F(MkeyUpdateTest, AUsersQpWritesNoPageLists) {
  owner.fast_registration = false;
  const auto key = free_key(TranslationMode::mtt, 2);
  EXPECT_EQ(apply(key, register_range(0, 8)), MemoryStatus::not_permitted);
  EXPECT_EQ(apply(free_key(TranslationMode::physical, 2), register_range(0, 8)),
            MemoryStatus::not_permitted);
  EXPECT_EQ(apply(free_key(TranslationMode::klm, 2), register_range(0, 8)), MemoryStatus::ok);
}

TEST_F(MkeyUpdateTest, ARangeMustNotWrap) {
  const auto key = free_key(TranslationMode::mtt, 2);
  EXPECT_EQ(apply(key, register_range(~0ULL, 2)), MemoryStatus::out_of_bounds);
  EXPECT_EQ(apply(key, register_range(~0ULL, 1)), MemoryStatus::ok);
}

TEST_F(MkeyUpdateTest, AWindowBoundToAQpIsThatQpsAlone) {
  const auto key = free_key(TranslationMode::klm, 4);
  auto update = register_range(0, 8);
  update.fields |= UmrMask::qpn;
  update.to.qpn = 0x51;
  EXPECT_EQ(apply(key, update), MemoryStatus::wrong_pd) << "another QP's";
  update.to.qpn = owner.qpn;
  ASSERT_EQ(apply(key, update), MemoryStatus::ok);
  MkeyUpdate release;
  release.fields = UmrMask::free | UmrMask::qpn;
  release.check_qpn = true;
  release.to.free = true;
  release.to.qpn = kAnyQp;
  MemoryContext other = owner;
  other.qpn = 0x52;
  EXPECT_EQ(keys.update(key | 1, other, release), MemoryStatus::wrong_pd);
  EXPECT_EQ(keys.update(key | 1, owner, release), MemoryStatus::ok);
}

// ---- indirect keys

class IndirectKeys : public MkeyUpdateTest {
 protected:
  std::uint32_t window(std::uint64_t start, std::span<const KlmSpec> pieces) {
    const auto key = free_key(TranslationMode::klm, static_cast<std::uint32_t>(pieces.size()));
    const auto list = klm_list(pieces);
    std::uint64_t length = 0;
    for (const KlmSpec& piece : pieces) length += piece.length;
    auto update = register_range(start, length);
    update.list = list;
    EXPECT_EQ(apply(key, update), MemoryStatus::ok);
    return key | 1;
  }
};

TEST_F(IndirectKeys, PiecesFollowEachOther) {
  const auto a = memory_key(kBase + 100, 3000);
  const auto b = memory_key(kBase + 8 * kPage, 2 * kPage);
  const std::array pieces{KlmSpec{kBase + 200, a, 7}, KlmSpec{0, 0, 0},
                          KlmSpec{kBase + 8 * kPage + 4090, b, 10}, KlmSpec{kBase + 100, a, 5}};
  const auto key = window(0x9'0000, pieces);
  std::vector<std::uint8_t> expected;
  for (unsigned i = 0; i < 7; ++i) expected.push_back(byte_at(kBase + 200 + i));
  for (unsigned i = 0; i < 10; ++i) expected.push_back(byte_at(kBase + 8 * kPage + 4090 + i));
  for (unsigned i = 0; i < 5; ++i) expected.push_back(byte_at(kBase + 100 + i));
  EXPECT_EQ(read(key, 0x9'0000, 22), expected);
  EXPECT_EQ(read(key, 0x9'0006, 3), std::vector(expected.begin() + 6, expected.begin() + 9));
  read(key, 0x9'0000, 23, MemoryStatus::out_of_bounds);
  read(key, 0x8'ffff, 1, MemoryStatus::out_of_bounds);

  std::vector<std::uint8_t> bytes(22, 0xee);
  EXPECT_EQ(keys.write(key, owner, 0x9'0000, bytes.data(), 22, MemoryAccess::remote_write),
            MemoryStatus::ok);
  EXPECT_EQ(byte_at(kBase + 8 * kPage + 4099), 0xee);
  EXPECT_NE(byte_at(kBase + 8 * kPage + 4100), 0xee);
}

TEST_F(IndirectKeys, EachInnerKeyIsCheckedWhenItIsUsed) {
  const auto good = memory_key(kBase, kPage);
  const auto foreign = memory_key(kBase, kPage, kPd + 1);
  const auto read_only = memory_key(kBase, kPage, kPd, MemoryAccess::local_read);
  const std::array pieces{KlmSpec{kBase, good, 8}, KlmSpec{kBase, foreign, 8},
                          KlmSpec{kBase, read_only, 8}, KlmSpec{kBase + 4090, good, 8}};
  const auto key = window(0, pieces);
  read(key, 0, 8);
  read(key, 0, 9, MemoryStatus::wrong_pd);
  read(key, 16, 8);
  std::uint64_t word = 0;
  EXPECT_EQ(keys.write(key, owner, 16, &word, 8, MemoryAccess::remote_write),
            MemoryStatus::not_permitted)
      << "a window gives no more than its owner may";
  read(key, 24, 6);
  read(key, 24, 7, MemoryStatus::out_of_bounds);
  EXPECT_EQ(keys.check(key, owner, 0, 32, MemoryAccess::remote_read), MemoryStatus::wrong_pd);
  keys.destroy(good >> 8);
  read(key, 0, 8, MemoryStatus::invalid_key);
}

TEST_F(IndirectKeys, FixedPiecesAreFoundByTheirSize) {
  const auto inner = memory_key(kBase, 16 * kPage);
  const auto key = free_key(TranslationMode::ksm, 4);
  std::vector<KlmSpec> pieces;
  for (const unsigned page : {9U, 3U, 12U, 1U}) pieces.push_back({kBase + page * kPage, inner, 0});
  const auto list = klm_list(pieces);
  auto update = register_range(0x5000'0100, 4 * kPage - 0x100);
  update.list = list;
  ASSERT_EQ(apply(key, update), MemoryStatus::ok);
  EXPECT_EQ(read(key | 1, 0x5000'0100, 1)[0], byte_at(kBase + 9 * kPage + 0x100));
  const auto across = read(key | 1, 0x5000'1fff, 2);
  EXPECT_EQ(across[0], byte_at(kBase + 3 * kPage + 0xfff));
  EXPECT_EQ(across[1], byte_at(kBase + 12 * kPage));
  read(key | 1, 0x5000'4000, 1, MemoryStatus::out_of_bounds);
}

TEST_F(IndirectKeys, KeysNestToABoundAndCirclesEnd) {
  std::uint32_t key = memory_key(kBase, kPage);
  for (unsigned level = 0; level < MkeyTable::kMaxIndirection; ++level) {
    const std::array pieces{KlmSpec{kBase, key, 64}};
    key = window(kBase, pieces);
    EXPECT_EQ(read(key, kBase + 3, 1)[0], byte_at(kBase + 3)) << "level " << level;
  }
  const std::array pieces{KlmSpec{kBase, key, 64}};
  read(window(kBase, pieces), kBase, 1, MemoryStatus::out_of_bounds);

  const auto circle = free_key(TranslationMode::klm, 4);
  const std::array self{KlmSpec{0, circle | 1, 64}};
  const auto list = klm_list(self);
  auto update = register_range(0, 64);
  update.list = list;
  ASSERT_EQ(apply(circle, update), MemoryStatus::ok);
  read(circle | 1, 0, 8, MemoryStatus::out_of_bounds);
  EXPECT_EQ(keys.check(circle | 1, owner, 0, 64, MemoryAccess::remote_read),
            MemoryStatus::out_of_bounds);
}

TEST_F(IndirectKeys, AnAccessThroughTooManyPiecesIsRefused) {
  const auto inner = memory_key(kBase, kPage);
  const std::vector<KlmSpec> pieces(2048, KlmSpec{kBase, inner, 1});
  const auto key = window(0, pieces);
  read(key, 0, MkeyTable::kMaxIndirectPieces);
  read(key, 0, MkeyTable::kMaxIndirectPieces + 1, MemoryStatus::out_of_bounds);
  read(key, 2047, 1);
}

TEST_F(IndirectKeys, AtomicsAndDirectPointersGoThrough) {
  const auto inner = memory_key(kBase, kPage);
  const std::array pieces{KlmSpec{kBase + 8, inner, 8}, KlmSpec{kBase + 64, inner, 16}};
  const auto key = window(0, pieces);
  keys.find(key >> 8)->attributes.access = kLocal | kRemote | MemoryAccess::remote_atomic;
  std::uint64_t old = 0;
  EXPECT_EQ(keys.atomic64(
                key, owner, 8, [](std::uint64_t) { return 0x1122ULL; }, old),
            MemoryStatus::ok);
  EXPECT_EQ(byte_at(kBase + 64), 0x22);
  MemoryStatus status{};
  EXPECT_NE(keys.try_span(key, owner, 8, 16, MemoryAccess::remote_read, status), nullptr);
  EXPECT_EQ(keys.try_span(key, owner, 4, 8, MemoryAccess::remote_read, status), nullptr);
  EXPECT_EQ(status, MemoryStatus::ok) << "allowed, but in two pieces";
}

TEST_F(IndirectKeys, APartOfTheListMayChange) {
  const auto inner = memory_key(kBase, 8 * kPage);
  const std::array pieces{KlmSpec{kBase, inner, 4}, KlmSpec{kBase + 16, inner, 4},
                          KlmSpec{kBase + 32, inner, 4}, KlmSpec{kBase + 48, inner, 4}};
  const auto key = window(0, pieces);
  const std::array one{KlmSpec{kBase + 1000, inner, 2}};
  const auto list = klm_list(one);
  MkeyUpdate update;
  update.list = list;
  update.list_offset = 1;
  ASSERT_EQ(apply(key, update), MemoryStatus::ok);
  EXPECT_EQ(read(key, 4, 1)[0], byte_at(kBase + 1000));
  EXPECT_EQ(read(key, 6, 1)[0], byte_at(kBase + 32));
  read(key, 14, 1, MemoryStatus::out_of_bounds);
}

}  // namespace
}  // namespace softhca
