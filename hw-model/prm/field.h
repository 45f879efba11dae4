// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace softhca::prm {

/// One field of a big-endian device structure, named by the bit offset that the PRM (and the
/// kernel's mlx5_ifc.h) gives it: bit 0 is the most significant bit of byte 0. Width is 1..64 bits.
/// A field of up to 32 bits lies inside one aligned 32-bit word; a wider one starts on a 32-bit
/// boundary.
///
/// Structures are plain byte buffers in big-endian order, as the device sees them; a layout is a
/// struct of such constants plus `size` in bytes, so encode, decode and print share one definition.
template <unsigned BitOffset, unsigned Width>
struct Field {
  static constexpr unsigned bit_offset = BitOffset;
  static constexpr unsigned width = Width;
  static_assert(Width >= 1 && Width <= 64);
  static_assert(Width <= 32 ? (BitOffset % 32) + Width <= 32 : BitOffset % 32 == 0);

  static constexpr std::uint64_t mask = Width == 64 ? ~0ULL : (1ULL << Width) - 1;
  static constexpr unsigned word_bits = Width <= 32 ? 32 : 64;
  static constexpr std::size_t byte_offset = BitOffset / 32 * 4;
  static constexpr unsigned shift = word_bits - Width - BitOffset % 32;

  /// Value of the field in the structure that starts at `base`.
  static constexpr std::uint64_t get(const std::uint8_t* base) {
    return load(base) >> shift & mask;
  }
  /// Stores the low `Width` bits of `value`; neighbouring fields keep theirs.
  static constexpr void set(std::uint8_t* base, std::uint64_t value) {
    if constexpr (Width == word_bits) {
      store(base, value);
    } else {
      store(base, (load(base) & ~(mask << shift)) | (value & mask) << shift);
    }
  }

 private:
  // Compilers do not make one load of a loop over bytes, and fields are read for every message.
  using Word = std::conditional_t<word_bits == 32, std::uint32_t, std::uint64_t>;
  static constexpr Word swapped(Word word) {
    if constexpr (std::endian::native == std::endian::big) return word;
    if constexpr (word_bits == 32) return __builtin_bswap32(word);
    return __builtin_bswap64(word);
  }
  static constexpr std::uint64_t load(const std::uint8_t* base) {
    std::uint64_t word = 0;
    if (std::is_constant_evaluated()) {
      for (unsigned i = 0; i < word_bits / 8; ++i) word = word << 8 | base[byte_offset + i];
      return word;
    }
    Word bytes = 0;
    std::memcpy(&bytes, base + byte_offset, sizeof bytes);
    return swapped(bytes);
  }
  static constexpr void store(std::uint8_t* base, std::uint64_t word) {
    if (std::is_constant_evaluated()) {
      for (unsigned i = word_bits / 8; i-- > 0; word >>= 8) {
        base[byte_offset + i] = static_cast<std::uint8_t>(word);
      }
      return;
    }
    const Word bytes = swapped(static_cast<Word>(word));
    std::memcpy(base + byte_offset, &bytes, sizeof bytes);
  }
};

/// A nested structure (or raw bytes) at a byte offset inside another.
template <std::size_t ByteOffset, std::size_t Size>
struct Block {
  static constexpr std::size_t offset = ByteOffset;
  static constexpr std::size_t size = Size;
  static constexpr const std::uint8_t* at(const std::uint8_t* base) { return base + ByteOffset; }
  static constexpr std::uint8_t* at(std::uint8_t* base) { return base + ByteOffset; }
};

}  // namespace softhca::prm
