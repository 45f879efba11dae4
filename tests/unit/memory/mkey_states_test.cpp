// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/memory/mkey_states.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "hw-model/runtime/mkey_state.h"

namespace softhca {
namespace {

constexpr std::uint8_t kVariant = 0x5a;
constexpr std::uint64_t kLength = 4096;
constexpr auto kAccess = MemoryAccess::local_read | MemoryAccess::remote_write;

class MkeyStatesTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kMemory = 0x10'0000;
  static constexpr std::uint64_t kPages = 0x20'0000;

  MkeyStatesTest() {
    dma.map({.iova = kMemory, .size = memory.size(), .base = memory.data(), .backing = nullptr});
    dma.map({.iova = kPages,
             .size = sizeof(pages),
             .base = reinterpret_cast<std::byte*>(pages.data()),
             .backing = nullptr});
    dma.on_revoke([this] { ++revocations; });
  }

  static MkeyAttributes attributes_of_key() {
    MkeyAttributes attributes;
    attributes.variant = kVariant;
    attributes.pd = 3;
    attributes.access = kAccess;
    attributes.start = 0x7000'0000;
    attributes.length = kLength;
    attributes.mode = TranslationMode::mtt;
    return attributes;
  }
  /// A key whose record is number `record` of page `page`.
  std::uint32_t create(std::size_t record = 0, std::size_t page = 0) {
    const MkeyAttributes attributes = attributes_of_key();
    const std::vector<std::uint64_t> list{kMemory};
    const std::uint32_t index = *keys.create(attributes, list);
    states.add(index, address_of(record, page));
    return index << 8 | kVariant;
  }
  static std::uint64_t address_of(std::size_t record, std::size_t page) {
    return kPages + page * sizeof(Page) + offsetof(MkeyStatePage, records) +
           record * sizeof(MkeyStateRecord);
  }
  void want(std::uint32_t state, std::size_t record = 0, std::size_t page = 0) {
    pages[page].state.records[record].wanted = __builtin_bswap32(state);
    pages[page].state.changes.fetch_add(1);
  }
  std::uint32_t seen(std::size_t record = 0, std::size_t page = 0) const {
    return __builtin_bswap32(pages[page].state.records[record].seen);
  }
  MemoryStatus check(std::uint32_t key) {
    return keys.check(key, {3}, 0x7000'0000, kLength, MemoryAccess::remote_write);
  }
  /// Makes the table keep a pointer to the memory.
  std::byte* use(std::uint32_t key) {
    return keys.span(key, {3}, 0x7000'0000, 8, MemoryAccess::remote_write);
  }
  std::byte* kept(std::uint32_t key) {
    return keys.quick_span(key, {3}, 0x7000'0000, 8, MemoryAccess::remote_write);
  }

  struct Page {
    MkeyStatePage state;
    std::array<std::byte, MkeyStatePage::kAlignment - sizeof(MkeyStatePage)> rest;
  };
  alignas(4096) std::array<std::byte, kLength> memory{};
  alignas(4096) std::array<Page, MkeyStates::kMostPages + 1> pages{};
  int revocations = 0;
  DmaSpace dma;
  MkeyTable keys{dma};
  MkeyStates states{dma, keys};
};

TEST_F(MkeyStatesTest, ARevokedKeyIsRefusedAndItsMemoryRecalled) {
  const std::uint32_t key = create();
  ASSERT_NE(use(key), nullptr);
  ASSERT_NE(kept(key), nullptr);
  want(kMkeyRevoked);
  EXPECT_EQ(check(key), MemoryStatus::ok) << "nobody has looked yet";
  const int before = revocations;
  states.look();
  EXPECT_EQ(check(key), MemoryStatus::invalid_key);
  EXPECT_EQ(kept(key), nullptr);
  EXPECT_EQ(revocations, before + 1);
  EXPECT_EQ(seen(), kMkeyRevoked);
}

TEST_F(MkeyStatesTest, AKeyComesBackUnderAnotherNameOnly) {
  const std::uint32_t key = create();
  ASSERT_NE(use(key), nullptr);
  want(kMkeyRevoked);
  states.look();
  want(kMkeyUsable | 0x5b);
  states.look();
  EXPECT_EQ(seen(), kMkeyUsable | 0x5bU);
  EXPECT_EQ(check(key), MemoryStatus::invalid_key);
  EXPECT_EQ(check(key + 1), MemoryStatus::ok);
  EXPECT_EQ(kept(key + 1), nullptr) << "what it may do is found out anew";
  EXPECT_NE(use(key + 1), nullptr);
  EXPECT_NE(kept(key + 1), nullptr);
  EXPECT_EQ(kept(key), nullptr);
}

TEST_F(MkeyStatesTest, AChangeOfNameAloneEndsTheOldOne) {
  const std::uint32_t key = create();
  ASSERT_NE(use(key), nullptr);
  want(kMkeyUsable | 0x77);
  const int before = revocations;
  states.look();
  EXPECT_EQ(check(key), MemoryStatus::invalid_key);
  EXPECT_EQ(kept(key), nullptr);
  EXPECT_EQ(check((key & ~0xffU) | 0x77), MemoryStatus::ok);
  EXPECT_EQ(revocations, before + 1) << "packets under the old name may be on their way";
}

TEST_F(MkeyStatesTest, AsCreatedChangesNothing) {
  const std::uint32_t key = create();
  ASSERT_NE(use(key), nullptr);
  const int before = revocations;
  want(kMkeyAsCreated);
  states.look();
  EXPECT_NE(kept(key), nullptr);
  EXPECT_EQ(revocations, before);
}

TEST_F(MkeyStatesTest, NonsenseRevokes) {
  for (const std::uint32_t state : {1U, 0x0ffU, 0x300U, 0x8000'0100U, ~0U}) {
    const std::uint32_t key = create();
    want(state);
    states.look();
    EXPECT_EQ(check(key), MemoryStatus::invalid_key) << state;
    keys.destroy(key >> 8);
    states.remove(key >> 8);
  }
}

TEST_F(MkeyStatesTest, KeysWhoseRecordsStayTheSameAreLeftAlone) {
  const std::uint32_t first = create(0);
  const std::uint32_t second = create(1);
  ASSERT_NE(use(first), nullptr);
  ASSERT_NE(use(second), nullptr);
  want(kMkeyRevoked, 1);
  states.look();
  EXPECT_NE(kept(first), nullptr);
  EXPECT_EQ(check(second), MemoryStatus::invalid_key);
  const int before = revocations;
  for (int i = 0; i < 3; ++i) states.look();
  pages[0].state.changes.fetch_add(1);
  states.look();
  EXPECT_EQ(revocations, before) << "a mark without a change";
  EXPECT_NE(kept(first), nullptr);
}

TEST_F(MkeyStatesTest, AnUnreadableRecordRevokes) {
  const std::uint32_t key = create();
  states.look();
  ASSERT_EQ(check(key), MemoryStatus::ok);
  dma.unmap(kPages, sizeof(pages));
  states.look();
  EXPECT_EQ(check(key), MemoryStatus::invalid_key);
}

TEST_F(MkeyStatesTest, ADestroyedKeyHasNoRecord) {
  const std::uint32_t key = create();
  keys.destroy(key >> 8);
  states.remove(key >> 8);
  EXPECT_EQ(states.size(), 0U);
  want(kMkeyUsable | 1);
  states.look();
  EXPECT_EQ(seen(), 0U);
}

TEST_F(MkeyStatesTest, AtRestItSaysSoAndLooksBeforeAnythingElse) {
  const std::uint32_t key = create(2);
  create(0, 1);
  states.look();
  states.begin_rest();
  EXPECT_NE(pages[0].state.at_rest, 0U);
  EXPECT_NE(pages[1].state.at_rest, 0U);
  want(kMkeyRevoked, 2);
  EXPECT_EQ(seen(2), 0U);
  states.end_rest();
  EXPECT_EQ(pages[0].state.at_rest, 0U);
  EXPECT_EQ(pages[1].state.at_rest, 0U);
  EXPECT_EQ(check(key), MemoryStatus::invalid_key);
}

TEST_F(MkeyStatesTest, SeveralChangesInOneRestAreOne) {
  const std::uint32_t key = create();
  states.begin_rest();
  want(kMkeyRevoked);
  want(kMkeyUsable | 0x10);
  want(kMkeyRevoked);
  want(kMkeyUsable | 0x11);
  states.end_rest();
  EXPECT_EQ(check(key), MemoryStatus::invalid_key);
  EXPECT_EQ(check((key & ~0xffU) | 0x10), MemoryStatus::invalid_key);
  EXPECT_EQ(check((key & ~0xffU) | 0x11), MemoryStatus::ok);
}

TEST_F(MkeyStatesTest, ThePageOfNoKeyIsNotAtRest) {
  const std::uint32_t key = create();
  states.begin_rest();
  states.remove(key >> 8);
  EXPECT_EQ(pages[0].state.at_rest, 0U) << "nobody would clear it";
}

TEST_F(MkeyStatesTest, MorePagesThanAreLookedAtSayNothing) {
  std::uint32_t last = 0;
  for (std::size_t page = 0; page < pages.size(); ++page) last = create(0, page);
  EXPECT_EQ(states.size(), MkeyStates::kMostPages);
  states.begin_rest();
  EXPECT_EQ(pages.back().state.at_rest, 0U);
  want(kMkeyRevoked, 0, pages.size() - 1);
  states.end_rest();
  EXPECT_EQ(seen(0, pages.size() - 1), 0U);
  EXPECT_EQ(check(last), MemoryStatus::ok) << "changed by commands alone";
}

TEST_F(MkeyStatesTest, RecordsLieInTheirPages) {
  EXPECT_TRUE(MkeyStates::is_record(kPages + 8));
  EXPECT_TRUE(MkeyStates::is_record(kPages + sizeof(MkeyStatePage) - 8));
  EXPECT_FALSE(MkeyStates::is_record(kPages)) << "the head of the page";
  EXPECT_FALSE(MkeyStates::is_record(kPages + 12));
  EXPECT_FALSE(MkeyStates::is_record(kPages + sizeof(MkeyStatePage)));
}

TEST_F(MkeyStatesTest, AKeyThatHasLostItsPagesDoesNotGetThemBack) {
  MkeyAttributes attributes = attributes_of_key();
  attributes.remote_invalidate = true;
  const std::vector<std::uint64_t> list{kMemory};
  const std::uint32_t index = *keys.create(attributes, list);
  states.add(index, address_of(0, 0));
  ASSERT_EQ(keys.invalidate(index << 8 | kVariant, {3}), MemoryStatus::ok);
  want(kMkeyUsable | 1);
  states.look();
  EXPECT_EQ(check(index << 8 | 1), MemoryStatus::out_of_bounds);
}

}  // namespace
}  // namespace softhca
