// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>

#include "hw-model/memory/dma_space.h"

namespace softhca {

/// A word of a doorbell record in host memory, which the device reads again and again.
class DoorbellRecord {
 public:
  /// As DmaSpace::load_be32() of `iova`, always the same one.
  DmaStatus load(DmaSpace& dma, std::uint64_t iova, std::uint32_t& value) {
    if (generation_ != dma.generation()) look_up(dma, iova);
    if (word_ == nullptr) return load_slowly(dma, iova, value);
    value = __builtin_bswap32(__atomic_load_n(word_, __ATOMIC_ACQUIRE));
    return DmaStatus::ok;
  }

  /// Where the word is mapped, for who looks at it again and again; null: nowhere, as far as is
  /// known. Valid until the generation of `dma` changes.
  const std::uint32_t* mapped_at(const DmaSpace& dma) const {
    return generation_ == dma.generation() ? word_ : nullptr;
  }

  /// Asks the processor for the word, where it was last found.
  void prefetch() const { __builtin_prefetch(word_); }

 private:
  static DmaStatus load_slowly(DmaSpace& dma, std::uint64_t iova, std::uint32_t& value) {
    // By a copy, so that `value` can stay in a register elsewhere.
    std::uint32_t word = value;
    const DmaStatus status = dma.load_be32(iova, word);
    value = word;
    return status;
  }
  void look_up(DmaSpace& dma, std::uint64_t iova) {
    generation_ = dma.generation();
    const std::byte* direct = iova % 4 == 0 ? dma.try_span(iova, 4, DmaAccess::read) : nullptr;
    const bool aligned = reinterpret_cast<std::uintptr_t>(direct) % 4 == 0;
    word_ = aligned ? reinterpret_cast<const std::uint32_t*>(direct) : nullptr;
  }

  const std::uint32_t* word_ = nullptr;  ///< Where it is mapped; null: nowhere.
  std::uint64_t generation_ = 0;         ///< Of the DmaSpace that `word_` was found in.
};

}  // namespace softhca
