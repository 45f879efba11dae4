// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/host/memory/shared_pages.h"

namespace softhca::shim {
namespace {

constexpr std::uint64_t kPageMask = 4095;

}  // namespace

ShareRange pages_of(std::uint64_t address, std::uint64_t length) {
  ShareRange range;
  range.address = address & ~kPageMask;
  range.length = ((address + length + kPageMask) & ~kPageMask) - range.address;
  return range;
}

}  // namespace softhca::shim
