// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>

namespace softhca::shim::preload {

/// Pages that were left private in a registration: the device reaches them by their addresses, may
/// write there at any time, and a swap would lose what it writes meanwhile. Nobody tells when that
/// ends, so they stay private. A page may pass for one of them without being one, since several
/// have the same bit: it is reached by its address, too, then.
class PrivatePages {
 public:
  void add(std::uint64_t address) {
    bits_[word_of(address)] |= bit_of(address);
    any_ = true;
  }
  bool has(std::uint64_t address) const {
    return any_ && (bits_[word_of(address)] & bit_of(address)) != 0;
  }

 private:
  static constexpr std::uint64_t kBits = 1 << 16;
  /// Multiplied, so that regions at regular distances do not fall on each other.
  static std::uint64_t place_of(std::uint64_t address) {
    return (address >> 12) * 0x9e3779b97f4a7c15 >> 48;
  }
  static std::size_t word_of(std::uint64_t address) { return place_of(address) / 64; }
  static std::uint64_t bit_of(std::uint64_t address) { return 1ULL << place_of(address) % 64; }

  std::uint64_t bits_[kBits / 64];
  bool any_;
};

}  // namespace softhca::shim::preload
