// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>

namespace softhca::shim::preload {

/// Pages that were left private in a registration: the device reaches them by their addresses, may
/// write there at any time, and a swap would lose what it writes meanwhile. Nobody tells when that
/// ends, so they stay private.
///
/// No other page passes for one of them, for it would not be pinned. Only where they are in too
/// many places for the table, every page passes for one.
///
/// All zero at first, and takes memory only where it is used. Not thread-safe.
class PrivatePages {
 public:
  static constexpr std::uint64_t kPage = 4096;
  /// Of 64 pages each.
  static constexpr std::size_t kMostGroups = 24'000;

  void add(std::uint64_t address) {
    Group& group = groups_[slot_of(address / kGroup)];
    if (group.pages == 0) {
      if (used_ == kMostGroups) {
        overflown_ = true;
        return;
      }
      ++used_;
      group.number = address / kGroup;
    }
    group.pages |= 1ULL << address / kPage % 64;
  }

  /// The first one of [begin, end), whole pages; `end`: there is none.
  std::uint64_t find(std::uint64_t begin, std::uint64_t end) const {
    if (used_ == 0 || begin >= end) return end;
    if (overflown_) return begin;
    for (std::uint64_t at = begin; at < end; at = (at / kGroup + 1) * kGroup) {
      const std::uint64_t pages = groups_[slot_of(at / kGroup)].pages >> at / kPage % 64;
      if (pages == 0) continue;
      const std::uint64_t found = at + static_cast<unsigned>(__builtin_ctzll(pages)) * kPage;
      return found < end ? found : end;
    }
    return end;
  }

 private:
  static constexpr std::uint64_t kGroup = 64 * kPage;
  static constexpr unsigned kLogSlots = 15;
  static constexpr std::size_t kSlots = 1U << kLogSlots;
  static_assert(kMostGroups < kSlots, "a search ends at a free slot");
  struct Group {
    std::uint64_t number;
    std::uint64_t pages;  // A bit for each; 0: the slot is free.
  };

  /// Where that group is, or would be.
  std::size_t slot_of(std::uint64_t number) const {
    std::size_t slot = number * 0x9e3779b97f4a7c15 >> (64 - kLogSlots);
    while (groups_[slot].pages != 0 && groups_[slot].number != number) slot = (slot + 1) % kSlots;
    return slot;
  }

  Group groups_[kSlots];
  std::size_t used_;
  bool overflown_;
};

}  // namespace softhca::shim::preload
