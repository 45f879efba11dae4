// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>

namespace softhca::shim::preload {

/// Hands out the offsets of a memfd at which swapped pages lie: none is used twice, so that pages
/// which the device still uses after the program has unmapped them stay what they are when others
/// take their place.
///
/// Neighbours in memory get neighbouring offsets where that is possible, for then they are one
/// mapping, of which a process has few: each window of the address space has its image in the file,
/// and a new one where pages of the old image have been used already. Which windows there were is
/// forgotten when there are many: that costs mappings only.
///
/// All zero at first. Not thread-safe.
class FileOffsets {
 public:
  static constexpr std::uint64_t kWindow = 64ULL << 20;
  /// Size of the file.
  static constexpr std::uint64_t kEnd = ~(1ULL << 63) & ~(kWindow - 1);

  /// An offset for the pages [begin, end) of one window, which is not empty; kEnd: used up.
  std::uint64_t take(std::uint64_t begin, std::uint64_t end);
  /// True if that offset makes [begin, end) one mapping with a neighbour that has one already.
  bool joins_neighbour(std::uint64_t begin, std::uint64_t end) const;
  /// The offset of kWindow bytes for pages that need no neighbours; kEnd: used up.
  std::uint64_t take_window();

 private:
  static constexpr std::uint64_t kPage = 4096;
  static constexpr std::uint64_t kSlots = 256;
  struct Window {
    std::uint64_t address;
    std::uint64_t offset;
    bool known;
    std::uint64_t used[kWindow / kPage / 64];  // One bit for each page.
  };

  static bool any_used(const Window& window, std::uint64_t first, std::uint64_t last);

  Window windows_[kSlots];
  std::uint64_t next_;
};

}  // namespace softhca::shim::preload
