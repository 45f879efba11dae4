// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/memory/mkey.h"

#include <algorithm>

namespace softhca {
namespace {

/// A list of this length that is emptied keeps its memory for the next one.
constexpr std::size_t kKeptEntries = 512;

std::span<const std::uint64_t> without_absent_tail(std::span<const std::uint64_t> pages) {
  while (!pages.empty() && pages.back() == kAbsentPage) pages = pages.first(pages.size() - 1);
  return pages;
}

/// The first page that does not follow the one before it, or their number.
std::size_t run_length(std::span<const std::uint64_t> pages, std::uint64_t page_size) {
  std::size_t run = 1;
  while (run < pages.size() && pages[run] == pages[0] + run * page_size) ++run;
  return std::min(run, pages.size());
}

}  // namespace

PageTable::PageTable(std::span<const std::uint64_t> pages, std::uint8_t log_page_size)
    : log_page_size_(std::min<std::uint8_t>(log_page_size, 31)) {
  assign(pages);
}

void PageTable::assign(std::span<const std::uint64_t> pages) {
  pages = without_absent_tail(pages);
  count_ = pages.size();
  pages_.clear();
  if (pages.empty()) return;
  base_ = pages[0];
  if (run_length(pages, 1ULL << log_page_size_) == pages.size()) return;
  pages_.assign(pages.begin(), pages.end());
}

void PageTable::replace(std::size_t first, std::span<const std::uint64_t> pages) {
  if (first == 0 && pages.size() >= count_) {
    assign(pages);
    return;
  }
  if (first + pages.size() >= count_) pages = without_absent_tail(pages);
  if (pages.empty() && first >= count_) return;
  if (continues_run(first, pages)) {
    count_ = std::max<std::uint64_t>(count_, first + pages.size());
    return;
  }
  expand();
  if (first + pages.size() > pages_.size()) pages_.resize(first + pages.size(), kAbsentPage);
  std::copy(pages.begin(), pages.end(), pages_.begin() + static_cast<std::ptrdiff_t>(first));
  count_ = pages_.size();
  collapse();
}

bool PageTable::continues_run(std::size_t first, std::span<const std::uint64_t> pages) const {
  if (!contiguous() || first == 0 || first > count_) return false;
  for (std::size_t i = 0; i < pages.size(); ++i) {
    if (pages[i] != base_ + ((first + i) << log_page_size_)) return false;
  }
  return true;
}

void PageTable::set_log_page_size(std::uint8_t log_page_size) {
  log_page_size = std::min<std::uint8_t>(log_page_size, 31);
  if (log_page_size == log_page_size_) return;
  expand();
  log_page_size_ = log_page_size;
  collapse();
}

void PageTable::clear() {
  count_ = 0;
  pages_.clear();
  if (pages_.capacity() > kKeptEntries) pages_.shrink_to_fit();
}

void PageTable::expand() {
  if (!contiguous()) return;
  pages_.reserve(count_);
  for (std::uint64_t page = 0; page < count_; ++page) {
    pages_.push_back(base_ + (page << log_page_size_));
  }
}

void PageTable::collapse() {
  if (pages_.empty() || run_length(pages_, 1ULL << log_page_size_) != pages_.size()) return;
  base_ = pages_[0];
  pages_.clear();
  if (pages_.capacity() > kKeptEntries) pages_.shrink_to_fit();
}

std::uint64_t PageTable::translate(std::uint64_t offset, std::uint64_t& length) const {
  length = std::min(length, size() - offset);
  const std::uint64_t mask = page_mask();
  if (pages_.empty()) return (base_ & mask) + offset;
  const std::uint64_t page_size = 1ULL << log_page_size_;
  std::uint64_t page = offset >> log_page_size_;
  const std::uint64_t address = (pages_[page] & mask) + (offset & ~mask);
  std::uint64_t run = page_size - (offset & ~mask);
  while (run < length && page + 1 < count_ &&
         (pages_[page + 1] & mask) == (pages_[page] & mask) + page_size) {
    ++page;
    run += page_size;
  }
  length = std::min(length, run);
  return address;
}

void KlmTable::replace(std::size_t first, std::span<const KlmPiece> pieces) {
  if (first + pieces.size() > pieces_.size()) {
    pieces_.resize(first + pieces.size());
    ends_.resize(pieces_.size());
  }
  std::copy(pieces.begin(), pieces.end(), pieces_.begin() + static_cast<std::ptrdiff_t>(first));
  // Pieces that the table grew over have no length.
  std::size_t from = first;
  while (from > 0 && pieces_[from - 1].length == 0) --from;
  std::uint64_t end = from == 0 ? 0 : ends_[from - 1];
  for (std::size_t i = from; i < pieces_.size(); ++i) {
    end += pieces_[i].length;
    ends_[i] = end;
  }
}

void KlmTable::clear() {
  pieces_.clear();
  ends_.clear();
  if (pieces_.capacity() > kKeptEntries) {
    pieces_.shrink_to_fit();
    ends_.shrink_to_fit();
  }
}

const KlmPiece& KlmTable::find(std::uint64_t offset, std::uint64_t& skip) const {
  const auto end = std::upper_bound(ends_.begin(), ends_.end(), offset);
  const KlmPiece& piece = pieces_[static_cast<std::size_t>(end - ends_.begin())];
  skip = offset - (*end - piece.length);
  return piece;
}

}  // namespace softhca
