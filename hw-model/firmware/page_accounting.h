// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <span>
#include <unordered_set>
#include <vector>

#include "hw-model/firmware/syndromes.h"
#include "hw-model/prm/commands_hca.h"

namespace softhca {

/// Host pages that the driver lends to the firmware (QUERY_PAGES, MANAGE_PAGES, page request
/// events). The device keeps its contexts elsewhere, so it never touches these pages; it asks for
/// and returns them as hardware does: some to boot, some to initialize, more as objects are
/// created, surplus back.
class PageAccounting {
 public:
  static constexpr std::uint32_t kPageSize = 4096;
  /// Pages asked for or offered back at a time while running.
  static constexpr std::int32_t kChunk = 64;
  /// Pages held at most: contexts and page tables at their limits need fewer.
  static constexpr std::size_t kMaxPages = std::size_t{1} << 18;
  /// Pages offered back at most by one event: their addresses fit into an output
  /// (CommandQueue::kMaxOutputLength).
  static constexpr std::int32_t kMaxOffer = 4096;

  PageAccounting(std::uint32_t boot_pages, std::uint32_t init_pages)
      : boot_pages_(boot_pages), init_pages_(init_pages) {}

  /// Forgets every page (device reset: the driver takes them back by itself).
  void reset();

  /// QUERY_PAGES: pages wanted (positive) or that can be taken back (negative).
  std::int32_t wanted(prm::QueryPagesOp op) const;
  bool booted() const { return pages_.size() >= boot_pages_; }
  bool initialized() const { return pages_.size() >= boot_pages_ + std::size_t{init_pages_}; }

  /// MANAGE_PAGES give. All or nothing.
  Syndrome give(std::span<const std::uint64_t> addresses);
  /// MANAGE_PAGES take: up to `most` pages; while `running` only surplus.
  std::vector<std::uint64_t> take(std::uint32_t most, bool running);
  /// MANAGE_PAGES "cannot give": the outstanding request is off, and objects that need more pages
  /// fail.
  void refuse();

  /// Context memory in use, in bytes: the sum over all objects.
  void set_used(std::uint64_t bytes) { used_ = bytes; }
  /// True if the driver refused pages without which no further object fits.
  bool exhausted() const { return refused_ && deficit() > 0; }
  /// Pages to ask for (positive) or to offer back (negative) by an event now; 0: none. Remembers
  /// that it has been asked.
  std::int32_t next_request();

  std::size_t held() const { return pages_.size(); }

 private:
  std::int64_t needed() const;
  std::int64_t deficit() const { return needed() - static_cast<std::int64_t>(pages_.size()); }

  std::uint32_t boot_pages_;
  std::uint32_t init_pages_;
  std::vector<std::uint64_t> pages_;
  std::unordered_set<std::uint64_t> known_;
  std::uint64_t used_ = 0;
  std::int32_t outstanding_ = 0;  ///< Asked by event and not answered yet.
  bool refused_ = false;
};

}  // namespace softhca
