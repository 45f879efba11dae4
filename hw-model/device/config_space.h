// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "hw-model/device/vendor_capability.h"

namespace softhca {

/// PCI configuration space of the function: type 0 header, PCI Express, MSI-X, power management and
/// vendor-specific capabilities where a ConnectX-5 has them. Little-endian. Which bits a driver can
/// change is one mask; all others are read-only.
class ConfigSpace {
 public:
  static constexpr std::size_t kSize = 4096;
  static constexpr std::uint16_t kVendorId = 0x15b3;
  static constexpr std::uint16_t kDeviceId = 0x1019;
  static constexpr std::uint8_t kCommand = 0x04;
  static constexpr std::uint16_t kBusMaster = 0x4;
  static constexpr std::uint8_t kPowerManagement = 0x40;
  static constexpr std::uint8_t kPciExpress = 0x60;
  static constexpr std::uint8_t kMsix = 0x9c;
  static constexpr std::uint8_t kVendorSpecific = 0xc0;

  /// Register offsets of the MSI-X structures inside BAR0.
  struct MsixLayout {
    unsigned vectors = 1;
    std::uint32_t table_offset = 0;
    std::uint32_t pba_offset = 0;
  };

  /// `bar0_size`: a power of two.
  ConfigSpace(std::uint64_t bar0_size, MsixLayout msix);

  /// Parts of a read beyond the end are ones.
  void read(std::uint32_t offset, std::span<std::byte> to) const;
  /// True if the write asks for a function level reset (Device Control bit 15).
  bool write(std::uint32_t offset, std::span<const std::byte> from);
  /// The driver lets the function make requests (command register, bit 2).
  bool bus_master() const { return (bytes_[kCommand] & kBusMaster) != 0; }
  /// Power-on values.
  void reset();

 private:
  void set(std::size_t offset, std::size_t size, std::uint64_t value, std::uint64_t writable = 0);
  void describe_header();
  void describe_capabilities();
  void update_vendor_registers();

  std::uint64_t bar0_size_;
  MsixLayout msix_;
  VendorCapability vendor_;
  std::array<std::uint8_t, kSize> bytes_{};
  std::array<std::uint8_t, kSize> writable_{};
};

}  // namespace softhca
