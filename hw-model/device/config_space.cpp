// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/device/config_space.h"

#include <algorithm>

namespace softhca {
namespace {

constexpr std::size_t kDeviceControl = ConfigSpace::kPciExpress + 0x08;
constexpr std::uint8_t kFunctionLevelReset = 0x80;  // bit 15, in the second byte of Device Control

}  // namespace

ConfigSpace::ConfigSpace(std::uint64_t bar0_size, MsixLayout msix)
    : bar0_size_(bar0_size), msix_(msix) {
  reset();
}

void ConfigSpace::reset() {
  bytes_.fill(0);
  writable_.fill(0);
  vendor_ = {};
  describe_header();
  describe_capabilities();
}

void ConfigSpace::set(std::size_t offset, std::size_t size, std::uint64_t value,
                      std::uint64_t writable) {
  for (std::size_t i = 0; i < size; ++i) {
    bytes_[offset + i] = static_cast<std::uint8_t>(value >> 8 * i);
    writable_[offset + i] = static_cast<std::uint8_t>(writable >> 8 * i);
  }
}

void ConfigSpace::describe_header() {
  set(0x00, 2, kVendorId);
  set(0x02, 2, kDeviceId);
  set(kCommand, 2, 0, 0x0546);  // command: memory, bus master, parity, SERR, INTx disable
  set(0x06, 2, 0x0010);         // status: capability list
  set(0x09, 3, 0x020700);       // class: network, InfiniBand
  set(0x0c, 1, 0, 0xff);        // cache line size
  constexpr std::uint64_t k64BitPrefetchable = 0xc;
  set(0x10, 8, k64BitPrefetchable, ~(bar0_size_ - 1));
  set(0x2c, 2, kVendorId);
  set(0x2e, 2, 0x0008);
  set(0x34, 1, kPciExpress);
  set(0x3c, 1, 0, 0xff);  // interrupt line
  set(0x3d, 1, 1);        // INTA
}

void ConfigSpace::describe_capabilities() {
  constexpr std::size_t e = kPciExpress;
  set(e + 0x00, 2, 0x10 | kMsix << 8);
  set(e + 0x02, 2, 0x0002);  // version 2, endpoint
  set(e + 0x04, 4,
      1U << 28 | 1U << 15 | 1U << 5 | 2);  // FLR, role-based errors, extended tag, 512 byte payload
  set(e + 0x08, 2, 0x2810, 0x7fff);        // device control; the FLR bit reads as 0
  set(e + 0x0c, 4, 0x00000103);            // link: 8 GT/s, x16
  set(e + 0x10, 2, 0, 0x01c3);
  set(e + 0x12, 2, 0x0103);
  set(e + 0x24, 4, 0x00000012);  // device capabilities 2: completion timeout ranges
  set(e + 0x28, 2, 0, 0x001f);
  set(e + 0x2c, 4, 0x0000000e);  // link speeds up to 8 GT/s
  set(e + 0x30, 2, 0x0003, 0x000f);

  set(kMsix + 0x0, 2, 0x11 | kVendorSpecific << 8);
  set(kMsix + 0x2, 2, msix_.vectors - 1, 0xc000);  // enable, function mask
  set(kMsix + 0x4, 4, msix_.table_offset);         // in BAR 0
  set(kMsix + 0x8, 4, msix_.pba_offset);

  set(kVendorSpecific + 0x0, 2, 0x09 | kPowerManagement << 8);
  set(kVendorSpecific + 0x2, 1, VendorCapability::kLength);
  update_vendor_registers();

  set(kPowerManagement + 0x0, 2, 0x0001);
  set(kPowerManagement + 0x2, 2, 0x0003);
  set(kPowerManagement + 0x4, 2, 0x0008, 0x0003);  // no soft reset; power state
}

void ConfigSpace::update_vendor_registers() {
  for (std::uint32_t at = VendorCapability::kControl; at < VendorCapability::kLength; at += 4) {
    set(kVendorSpecific + at, 4, vendor_.read(at));
  }
}

void ConfigSpace::read(std::uint32_t offset, std::span<std::byte> to) const {
  for (std::size_t i = 0; i < to.size(); ++i) {
    const std::uint64_t at = std::uint64_t{offset} + i;
    to[i] = at < kSize ? std::byte{bytes_[at]} : std::byte{0xff};
  }
}

bool ConfigSpace::write(std::uint32_t offset, std::span<const std::byte> from) {
  if (from.size() == 4 && offset % 4 == 0 && offset > kVendorSpecific &&
      offset < kVendorSpecific + VendorCapability::kLength) {
    std::uint32_t value = 0;
    for (std::size_t i = 4; i-- > 0;) value = value << 8 | std::to_integer<std::uint32_t>(from[i]);
    vendor_.write(offset - kVendorSpecific, value);
    update_vendor_registers();
    return false;
  }
  bool reset_wanted = false;
  for (std::size_t i = 0; i < from.size(); ++i) {
    const std::uint64_t at = std::uint64_t{offset} + i;
    if (at >= kSize) break;
    const auto value = static_cast<std::uint8_t>(from[i]);
    bytes_[at] = static_cast<std::uint8_t>((bytes_[at] & ~writable_[at]) | (value & writable_[at]));
    if (at == kDeviceControl + 1 && (value & kFunctionLevelReset) != 0) reset_wanted = true;
  }
  return reset_wanted;
}

}  // namespace softhca
