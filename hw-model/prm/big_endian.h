// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

namespace softhca::prm {

/// An integer held in memory in big-endian order; reads and writes convert. `raw` is the word as
/// stored, for copies and comparisons that need no conversion. Trivial, so structures of these can
/// lie over device memory; alignment is that of the integer.
template <typename T>
struct BigEndian {
  static_assert(std::is_unsigned_v<T> && std::endian::native == std::endian::little);
  T raw;

  static constexpr T swap(T value) {
    if constexpr (sizeof(T) == 2) return __builtin_bswap16(value);
    if constexpr (sizeof(T) == 4) return __builtin_bswap32(value);
    if constexpr (sizeof(T) == 8) return __builtin_bswap64(value);
  }
  static constexpr BigEndian of(T value) { return BigEndian{swap(value)}; }
  constexpr T get() const { return swap(raw); }
  constexpr void set(T value) { raw = swap(value); }
  constexpr operator T() const { return get(); }
  constexpr BigEndian& operator=(T value) {
    set(value);
    return *this;
  }
};
using Be16 = BigEndian<std::uint16_t>;
using Be32 = BigEndian<std::uint32_t>;
using Be64 = BigEndian<std::uint64_t>;
static_assert(std::is_trivial_v<Be32> && sizeof(Be16) == 2 && sizeof(Be32) == 4 &&
              sizeof(Be64) == 8);

}  // namespace softhca::prm
