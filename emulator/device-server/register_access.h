// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace softhca::emulator {

/// Cuts a region access of any size into the register accesses a PCI device sees: naturally
/// aligned, 1, 2, 4 or 8 bytes, in ascending order. Calls `access(offset, part)` for each.
template <typename Byte, typename Access>
void for_each_register(std::uint64_t offset, std::span<Byte> bytes, Access&& access) {
  while (!bytes.empty()) {
    const std::uint64_t aligned = offset == 0 ? 8 : offset & (~offset + 1);
    const std::size_t size =
        std::min({std::size_t{8}, static_cast<std::size_t>(std::min<std::uint64_t>(aligned, 8)),
                  std::bit_floor(bytes.size())});
    access(offset, bytes.first(size));
    offset += size;
    bytes = bytes.subspan(size);
  }
}

}  // namespace softhca::emulator
