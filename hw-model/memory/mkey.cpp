// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/memory/mkey.h"

#include <algorithm>

namespace softhca {

PageTable::PageTable(std::span<const std::uint64_t> pages, std::uint8_t log_page_size)
    : count_(pages.size()), log_page_size_(std::min<std::uint8_t>(log_page_size, 31)) {
  const std::uint64_t page_size = 1ULL << log_page_size_;
  const std::uint64_t mask = ~(page_size - 1);
  if (pages.empty()) return;
  base_ = pages[0] & mask;
  for (std::size_t i = 1; i < pages.size(); ++i) {
    if ((pages[i] & mask) == base_ + i * page_size) continue;
    pages_.reserve(pages.size());
    for (const std::uint64_t page : pages) pages_.push_back(page & mask);
    return;
  }
}

std::uint64_t PageTable::translate(std::uint64_t offset, std::uint64_t& length) const {
  length = std::min(length, size() - offset);
  if (pages_.empty()) return base_ + offset;
  const std::uint64_t page_size = 1ULL << log_page_size_;
  std::uint64_t page = offset >> log_page_size_;
  const std::uint64_t address = pages_[page] + (offset & (page_size - 1));
  std::uint64_t run = page_size - (offset & (page_size - 1));
  while (run < length && page + 1 < count_ && pages_[page + 1] == pages_[page] + page_size) {
    ++page;
    run += page_size;
  }
  length = std::min(length, run);
  return address;
}

}  // namespace softhca
