// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "kernel-shim/host/device/pci_device.h"
#include "kernel-shim/host/memory/iova_allocator.h"
#include "kernel-shim/host/memory/shared_file.h"

namespace softhca::shim {

/// Where the device finds a part of a region: whole pages of a file.
struct DmaPiece {
  int fd = -1;  ///< Borrowed.
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

/// A range of memory that the device may reach, until destruction.
class DmaRegion {
 public:
  DmaRegion() = default;
  DmaRegion(DmaRegion&& other) noexcept { swap(other); }
  DmaRegion& operator=(DmaRegion&& other) noexcept {
    DmaRegion(std::move(other)).swap(*this);
    return *this;
  }
  ~DmaRegion();

  /// Maps the pages around [start, start + length), which `pieces` are one after the other, at a
  /// fresh IOVA I with I mod `alignment` == start's image of `congruent` mod `alignment`. 0 or an
  /// errno. `alignment` is a power of two >= 4096; start and `congruent` agree in their low 12
  /// bits.
  static int map(PciDevice& device, IovaAllocator& iovas, std::span<const DmaPiece> pieces,
                 std::uint64_t start, std::uint64_t length, std::uint64_t alignment,
                 std::uint64_t congruent, bool writable, DmaRegion& region);

  /// Address by which the device reaches `start`.
  std::uint64_t iova() const { return iova_; }
  explicit operator bool() const { return device_ != nullptr; }

 private:
  void swap(DmaRegion& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(map_iova_, other.map_iova_);
    std::swap(map_size_, other.map_size_);
    std::swap(iova_, other.iova_);
  }

  PciDevice* device_ = nullptr;
  std::uint64_t map_iova_ = 0;
  std::uint64_t map_size_ = 0;
  std::uint64_t iova_ = 0;
};

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

/// Maps `length` bytes at `address`, which lie in `pieces`, so that the device needs as few pages as
/// possible: one, if the buffer is page aligned. 0 or an errno; EINVAL: not aligned to 64 bytes.
int map_queue_buffer(PciDevice& device, IovaAllocator& iovas, std::span<const DmaPiece> pieces,
                     std::uint64_t address, std::uint64_t length, QueueMemory& memory);

}  // namespace softhca::shim
