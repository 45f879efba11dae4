// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <map>

namespace softhca {

/// The vendor-specific PCI capability of a ConnectX: a window to address spaces of the device,
/// which tools and drivers share by a semaphore (Linux mlx5 lib/pci_vsc.c). Of the spaces it has
/// that of firmware semaphores and the scan of configuration registers, which reads as zeros here.
class VendorCapability {
 public:
  static constexpr std::uint8_t kLength = 0x18;

  /// Registers, as offsets in the capability.
  static constexpr std::uint32_t kControl = 0x04;
  static constexpr std::uint32_t kCounter = 0x08;
  static constexpr std::uint32_t kSemaphore = 0x0c;
  static constexpr std::uint32_t kAddress = 0x10;
  static constexpr std::uint32_t kData = 0x14;

  static constexpr std::uint16_t kScanSpace = 0x7;
  static constexpr std::uint16_t kSemaphoreSpace = 0xa;
  /// Bytes of the scan.
  static constexpr std::uint32_t kScanSize = 0x100;

  /// Register at `offset`; 0: there is none.
  std::uint32_t read(std::uint32_t offset) const;
  void write(std::uint32_t offset, std::uint32_t value);

 private:
  void access(std::uint32_t address);

  std::uint32_t control_ = 0;
  std::uint32_t counter_ = 1;  ///< Another one after each time the window was taken.
  std::uint32_t semaphore_ = 0;
  std::uint32_t address_ = 0;
  std::uint32_t data_ = 0;
  std::map<std::uint32_t, std::uint32_t> semaphores_;  ///< Owners of those that are taken.
};

}  // namespace softhca
