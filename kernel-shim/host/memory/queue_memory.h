// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <vector>

#include "kernel-shim/host/memory/dma_region.h"
#include "kernel-shim/host/memory/shared_file.h"

namespace softhca::shim {

/// Doorbell record pages of a context: many records share a page, and each page is mapped once
/// while any of its records is used (mlx5_ib_db_map_user).
class DoorbellPages {
 public:
  DoorbellPages(PciDevice& device, IovaAllocator& iovas) : device_(device), iovas_(iovas) {}

  /// Keeps the page of the record at `address`, which is `piece`, mapped while `hold` lives. 0 or
  /// an errno; EINVAL if the record is not 8-byte aligned.
  int map(const DmaPiece& piece, std::uint64_t address, std::shared_ptr<DmaRegion>& hold,
          std::uint64_t& iova);

 private:
  PciDevice& device_;
  IovaAllocator& iovas_;
  /// Device and inode of the file, and offset: processes that share a context have different memory
  /// at the same address.
  using Page = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>;
  std::map<Page, std::weak_ptr<DmaRegion>> pages_;
};

/// Memory of a work queue or CQ as the device knows it.
struct QueueMemory {
  Pins pins;  ///< Of both.
  DmaRegion buffer;
  std::shared_ptr<DmaRegion> doorbell_page;
  std::uint64_t doorbell_iova = 0;
  std::uint8_t log_page_size = 0;  ///< Page is 4096 << log_page_size.
  std::uint8_t page_offset = 0;    ///< In 64ths of a page.
  std::vector<std::uint64_t> pages;
};

/// Maps `length` bytes at `address`, which lie in `pieces`, so that the device needs as few pages
/// as possible: one, if the buffer is page aligned. 0 or an errno; EINVAL: not aligned to 64 bytes.
int map_queue_buffer(PciDevice& device, IovaAllocator& iovas, std::span<const DmaPiece> pieces,
                     std::uint64_t address, std::uint64_t length, QueueMemory& memory);

}  // namespace softhca::shim
