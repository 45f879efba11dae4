// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <optional>

namespace softhca::shim {

/// Hands out I/O virtual addresses. Every registration gets a fresh one (never a process's own
/// address: processes collide), and none is used twice, so a device that keeps using a range after
/// it was unmapped faults instead of reaching someone else's memory. 2^62 bytes last: a gigabyte
/// every microsecond for an hour and more.
class IovaAllocator {
 public:
  static constexpr std::uint64_t kFirst = 1ULL << 32;
  static constexpr std::uint64_t kLimit = 1ULL << 62;
  static constexpr std::uint64_t kPage = 4096;

  /// Addresses from `end` on are not handed out. At most kLimit; before the first allocation.
  void set_end(std::uint64_t end) { end_ = end; }

  /// An address A with A mod `alignment` == `offset`, [A, A + size) unused so far and a guard page
  /// before and after it. `alignment`: a power of two >= 4096; `offset` < alignment. Empty:
  /// exhausted or wrapping.
  std::optional<std::uint64_t> allocate(std::uint64_t size, std::uint64_t alignment,
                                        std::uint64_t offset) {
    if (size == 0 || size > end_ || alignment > kLimit || offset >= alignment) return std::nullopt;
    std::uint64_t address = (next_ & ~(alignment - 1)) + offset;
    if (address < next_) address += alignment;
    if (address > end_ - size) return std::nullopt;
    next_ = ((address + size + kPage - 1) & ~(kPage - 1)) + kPage;
    return address;
  }

 private:
  std::uint64_t next_ = kFirst;
  std::uint64_t end_ = kLimit;
};

}  // namespace softhca::shim
