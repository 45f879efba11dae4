// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <list>
#include <utility>

#include "kernel-shim/host/memory/dma_region.h"

namespace softhca::shim {

/// DMA maps of pages that no key names any more, kept because the next registration of the same
/// pages is likely: making and ending a map costs a message to the device each, and the page tables
/// of the range there. No key leads to them meanwhile.
class IdleRegions {
 public:
  /// What two registrations must have in common.
  struct Key {
    std::uint64_t offset = 0;  ///< Whole pages of the file.
    std::uint64_t length = 0;
    std::uint64_t alignment = 0;  ///< Of the I/O virtual address (DmaRegion::map).
    std::uint64_t congruent = 0;  ///< Modulo the alignment.
    bool writable = false;
    auto operator<=>(const Key&) const = default;
  };

  /// False: there is none.
  bool take(const Key& key, DmaRegion& region) {
    for (auto at = regions_.begin(); at != regions_.end(); ++at) {
      if (at->first != key) continue;
      region = std::move(at->second);
      regions_.erase(at);
      return true;
    }
    return false;
  }
  void put(const Key& key, DmaRegion&& region) {
    regions_.emplace_front(key, std::move(region));
    if (regions_.size() > kMost) regions_.pop_back();
  }
  /// Ends those of pages in [begin, end).
  void drop(std::uint64_t begin, std::uint64_t end) {
    regions_.remove_if([begin, end](const auto& each) {
      return each.first.offset < end && each.first.offset + each.first.length > begin;
    });
  }

 private:
  static constexpr std::size_t kMost = 32;
  std::list<std::pair<Key, DmaRegion>> regions_;  // The one put last is the first.
};

}  // namespace softhca::shim
