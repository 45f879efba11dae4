// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/preload/file_offsets.h"

#include <cstring>

namespace softhca::shim::preload {

bool FileOffsets::any_used(const Window& window, std::uint64_t first, std::uint64_t last) {
  for (std::uint64_t page = first; page < last; ++page) {
    if (page % 64 == 0 && last - page >= 64 && window.used[page / 64] == 0) {
      page += 63;
      continue;
    }
    if ((window.used[page / 64] >> page % 64 & 1) != 0) return true;
  }
  return false;
}

std::uint64_t FileOffsets::take_window() {
  if (next_ == kEnd) return kEnd;
  const std::uint64_t offset = next_;
  next_ += kWindow;
  return offset;
}

bool FileOffsets::joins_neighbour(std::uint64_t begin, std::uint64_t end) const {
  const std::uint64_t address = begin & ~(kWindow - 1);
  const std::uint64_t first = (begin - address) / kPage;
  const std::uint64_t last = (end - address) / kPage;
  const Window& window = windows_[address / kWindow % kSlots];
  if (!window.known || window.address != address || any_used(window, first, last)) return false;
  return (first != 0 && any_used(window, first - 1, first)) ||
         (last != kWindow / kPage && any_used(window, last, last + 1));
}

std::uint64_t FileOffsets::take(std::uint64_t begin, std::uint64_t end) {
  const std::uint64_t address = begin & ~(kWindow - 1);
  const std::uint64_t first = (begin - address) / kPage;
  const std::uint64_t last = (end - address) / kPage;
  Window& window = windows_[address / kWindow % kSlots];
  if (!window.known || window.address != address || any_used(window, first, last)) {
    const std::uint64_t offset = take_window();
    if (offset == kEnd) return kEnd;
    std::memset(&window, 0, sizeof(window));
    window.address = address;
    window.offset = offset;
    window.known = true;
  }
  for (std::uint64_t page = first; page < last; ++page) {
    window.used[page / 64] |= 1ULL << page % 64;
  }
  return window.offset + (begin - address);
}

}  // namespace softhca::shim::preload
