// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hw-model/memory/dma_space.h"
#include "hw-model/memory/mkey.h"

namespace softhca {

/// Driver memory that holds a queue: a list of pages and the byte where the queue begins in the
/// first one. (CREATE_* commands: pas[], log_page_size, page_offset in units of page_size / 64.)
class QueueBuffer {
 public:
  QueueBuffer() = default;
  /// `log_page_bytes`: log2 of the page size in bytes (12 + log_page_size of the context).
  /// `offset`: bytes.
  QueueBuffer(DmaSpace& dma, std::span<const std::uint64_t> pages, std::uint8_t log_page_bytes,
              std::uint64_t offset);

  /// Bytes from the queue's beginning to the end of the last page.
  std::uint64_t size() const { return size_; }

  /// Pointer to [offset, offset + length) when the whole queue is one directly mapped piece, or
  /// the range lies in one page of 4 KiB that is; else null. Valid until the DmaSpace changes.
  std::byte* direct(std::uint64_t offset, std::uint64_t length) {
    if (offset > size_ || length > size_ - offset) return nullptr;
    if (cached_generation_ != dma_->generation()) look_up();
    if (cached_ != nullptr) return cached_ + offset;
    return in_one_page(offset_ + offset, length);
  }

  /// Accesses of [offset, offset + length); outside of size() faults.
  DmaStatus read(std::uint64_t offset, void* to, std::uint64_t length);
  DmaStatus write(std::uint64_t offset, const void* from, std::uint64_t length);
  /// DmaSpace::store_release of the byte at `offset`.
  DmaStatus store_release(std::uint64_t offset, std::uint8_t value);
  /// As read(), from a ring of `ring_size` bytes that begins at `ring_start`: what would pass its
  /// end goes on at its start. `position` is relative to ring_start and below ring_size; length <=
  /// ring_size.
  DmaStatus read_ring(std::uint64_t ring_start, std::uint64_t ring_size, std::uint64_t position,
                      void* to, std::uint64_t length);

 private:
  /// Pages of the list may be larger, but their I/O virtual addresses may be mapped in pieces of
  /// this size.
  static constexpr unsigned kLogPage = 12;
  /// A page of a queue that is not one piece.
  struct Page {
    std::byte* base = nullptr;  ///< Null: it is not directly mapped, read-write.
    bool known = false;
  };

  void look_up();
  std::byte* in_one_page(std::uint64_t at, std::uint64_t length);
  std::byte* find(std::uint64_t at, std::uint64_t length);

  DmaSpace* dma_ = nullptr;
  PageTable pages_;
  std::uint64_t offset_ = 0;
  std::uint64_t size_ = 0;
  std::byte* cached_ = nullptr;  ///< Whole queue, when contiguous and directly mapped read-write.
  std::vector<Page> cached_pages_;  ///< Otherwise.
  std::uint64_t cached_generation_ = 0;
};

}  // namespace softhca
