// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <map>

#include "emulator/runtime/result.h"

namespace softhca::shim {

/// What the device reaches through the IOMMU of a VFIO container. Type 1 maps memory of the calling
/// process, and pins it: every file range is mapped here first.
class VfioDma {
 public:
  /// `container`: borrowed, with its IOMMU set.
  static runtime::Result<VfioDma> open(int container);
  VfioDma(VfioDma&& other) noexcept = default;
  VfioDma& operator=(VfioDma&&) = delete;
  VfioDma(const VfioDma&) = delete;
  ~VfioDma();

  /// As PciDevice's. EOPNOTSUPP: the file is none that can be mapped (/proc/PID/mem).
  int map(std::uint64_t iova, std::uint64_t size, int fd, std::uint64_t offset, bool writable);
  int unmap(std::uint64_t iova, std::uint64_t size);

  /// First address behind those that the IOMMU translates, from IovaAllocator::kFirst on.
  std::uint64_t iova_end() const { return iova_end_; }

 private:
  struct Window {
    void* base = nullptr;
    std::uint64_t size = 0;
  };

  VfioDma(int container, std::uint64_t iova_end) : container_(container), iova_end_(iova_end) {}

  int container_;
  std::uint64_t iova_end_;
  std::map<std::uint64_t, Window> windows_;  ///< By IOVA.
};

}  // namespace softhca::shim
