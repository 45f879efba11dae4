// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/device/vendor_capability.h"

namespace softhca {
namespace {

constexpr std::uint32_t kSpaceMask = 0xffff;
constexpr std::uint32_t kSizeValid = 1U << 28;
constexpr std::uint32_t kSupported = 1U << 29;
constexpr std::uint32_t kFlag = 1U << 31;  ///< Set: a write is to be done, or a read is done.
constexpr std::uint32_t kAddressMask = (1U << 30) - 1;
constexpr std::uint32_t kSemaphoreBytes = 0x1000;

}  // namespace

std::uint32_t VendorCapability::read(std::uint32_t offset) const {
  switch (offset) {
    case kControl:
      return control_;
    case kCounter:
      return counter_;
    case kSemaphore:
      return semaphore_;
    case kAddress:
      return address_;
    case kData:
      return data_;
    default:
      return 0;
  }
}

void VendorCapability::write(std::uint32_t offset, std::uint32_t value) {
  switch (offset) {
    case kControl:
      control_ = value & kSpaceMask;
      if (control_ == kScanSpace) {
        control_ |= kSupported | kSizeValid;
        address_ = kScanSize;
      } else if (control_ == kSemaphoreSpace) {
        control_ |= kSupported;
      }
      break;
    case kSemaphore:
      if (value == 0) {
        semaphore_ = 0;
      } else if (semaphore_ == 0) {
        semaphore_ = value;
        if (++counter_ == 0) counter_ = 1;
      }
      break;
    case kAddress:
      access(value);
      break;
    case kData:
      data_ = value;
      break;
    default:
      break;
  }
}

void VendorCapability::access(std::uint32_t address) {
  const bool write = (address & kFlag) != 0;
  const std::uint32_t at = address & kAddressMask;
  const std::uint32_t space = control_ & kSpaceMask;
  if (space == kSemaphoreSpace && at < kSemaphoreBytes) {
    const auto held = semaphores_.find(at);
    if (!write) {
      data_ = held == semaphores_.end() ? 0 : held->second;
    } else if (data_ == 0) {
      semaphores_.erase(at);
    } else if (held == semaphores_.end()) {
      semaphores_[at] = data_;
    }
  } else if (!write) {
    data_ = 0;
  }
  // The scan says where it goes on.
  const std::uint32_t next = space == kScanSpace && !write ? (at + 4) & kAddressMask : at;
  address_ = next | (write ? 0 : kFlag);
}

}  // namespace softhca
