// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/firmware/page_accounting.h"

#include <algorithm>

namespace softhca {

void PageAccounting::reset() {
  pages_.clear();
  known_.clear();
  used_ = 0;
  outstanding_ = 0;
  refused_ = false;
}

std::int64_t PageAccounting::needed() const {
  // The init pages hold the contexts of a small working set.
  const std::int64_t contexts = static_cast<std::int64_t>((used_ + kPageSize - 1) / kPageSize);
  return std::int64_t{boot_pages_} + std::max<std::int64_t>(init_pages_, contexts);
}

std::int32_t PageAccounting::wanted(prm::QueryPagesOp op) const {
  const auto held = static_cast<std::int64_t>(pages_.size());
  std::int64_t pages = 0;
  switch (op) {
    case prm::QueryPagesOp::boot:
      pages = std::max<std::int64_t>(0, boot_pages_ - held);
      break;
    case prm::QueryPagesOp::init:
      pages = std::max<std::int64_t>(0, std::int64_t{boot_pages_} + init_pages_ - held);
      break;
    case prm::QueryPagesOp::regular:
      pages = deficit();
      break;
  }
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(pages, INT32_MIN, INT32_MAX));
}

Syndrome PageAccounting::give(std::span<const std::uint64_t> addresses) {
  if (addresses.size() > kMaxPages - pages_.size()) return Syndrome::too_many_pages;
  std::unordered_set<std::uint64_t> fresh;
  for (const std::uint64_t address : addresses) {
    if (address % kPageSize != 0) return Syndrome::bad_page_address;
    if (known_.contains(address) || !fresh.insert(address).second)
      return Syndrome::page_given_twice;
  }
  pages_.insert(pages_.end(), addresses.begin(), addresses.end());
  known_.merge(fresh);
  outstanding_ =
      std::max<std::int32_t>(0, outstanding_ - static_cast<std::int32_t>(addresses.size()));
  refused_ = false;
  return Syndrome::none;
}

std::vector<std::uint64_t> PageAccounting::take(std::uint32_t most, bool running) {
  std::int64_t count = std::min<std::int64_t>(most, static_cast<std::int64_t>(pages_.size()));
  if (running) count = std::clamp<std::int64_t>(-deficit(), 0, count);
  std::vector<std::uint64_t> taken(pages_.end() - count, pages_.end());
  pages_.resize(pages_.size() - static_cast<std::size_t>(count));
  for (const std::uint64_t address : taken) known_.erase(address);
  if (outstanding_ < 0) outstanding_ = 0;
  return taken;
}

void PageAccounting::refuse() {
  outstanding_ = 0;
  refused_ = true;
}

std::int32_t PageAccounting::next_request() {
  if (outstanding_ != 0) return 0;
  const std::int64_t missing = deficit();
  if (missing > 0) {
    if (refused_) return 0;
    outstanding_ = static_cast<std::int32_t>((missing + kChunk - 1) / kChunk) * kChunk;
  } else if (-missing >= 3 * kChunk) {
    // Hysteresis: one chunk stays, so that a driver that creates and destroys is not asked each
    // time.
    outstanding_ = static_cast<std::int32_t>(std::max<std::int64_t>(missing + kChunk, -kMaxOffer));
  }
  return outstanding_;
}

}  // namespace softhca
