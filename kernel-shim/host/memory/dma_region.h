// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "kernel-shim/host/device/pci_device.h"
#include "kernel-shim/host/memory/iova_allocator.h"

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

  /// The same for one piece, without waiting for the device: PciDevice::settle() tells whether it
  /// is mapped.
  static int start_map(PciDevice& device, IovaAllocator& iovas, const DmaPiece& piece,
                       std::uint64_t start, std::uint64_t length, std::uint64_t alignment,
                       std::uint64_t congruent, bool writable, DmaRegion& region);

  /// Address by which the device reaches `start`.
  std::uint64_t iova() const { return iova_; }
  explicit operator bool() const { return device_ != nullptr; }

 private:
  /// An unmapped region with an address.
  static int place(IovaAllocator& iovas, std::uint64_t start, std::uint64_t length,
                   std::uint64_t alignment, std::uint64_t congruent, DmaRegion& region);

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

}  // namespace softhca::shim
