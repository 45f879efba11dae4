// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>

#include "kernel-shim/preload/file_offsets.h"

namespace softhca::shim::preload {

/// Pages of the memfd that are allocated ahead for the next registration: allocating them takes
/// longer than copying into them. A part of the file of their own, handed out in order, none twice.
///
/// The process that is going to use them allocates them, on its own processor: those that it has
/// given back just before, which the processor's cache has. Taken from another processor's lists
/// they would be as slow to write to as new ones.
///
/// There are never more than a process has registered and given back, and none in a process that
/// has not. All zero at first. Not thread-safe.
class ReadyPages {
 public:
  /// Regions that are given such pages.
  static constexpr std::uint64_t kSmallest = 64ULL << 10;
  /// Also how much is kept ready.
  static constexpr std::uint64_t kLargest = 2ULL << 20;
  /// Allocated at once, in some 7 us.
  static constexpr std::uint64_t kStep = 64ULL << 10;

  /// An offset for a region of `length` bytes; FileOffsets::kEnd: not enough is ready.
  std::uint64_t take(std::uint64_t length);
  /// So many bytes of the file were given back.
  void given_back(std::uint64_t length);
  /// True if prepare() has something to do.
  bool are_wanted() const { return wanted_ != 0; }
  /// Allocates some of the pages that are wanted. False: none, and none are wanted any more.
  bool prepare(int file, FileOffsets& offsets);
  /// Another file takes the place of the one they are of.
  void forget() { *this = ReadyPages{}; }

 private:
  bool make_room(int file, FileOffsets& offsets);

  std::uint64_t begin_;  // What is ready.
  std::uint64_t end_;
  std::uint64_t limit_;       // Of the part of the file.
  std::uint64_t registered_;  // Bytes that might have been taken, and were not given back yet.
  std::uint64_t wanted_;
};

}  // namespace softhca::shim::preload
