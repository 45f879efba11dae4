// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "hw-model/prm/uar.h"
#include "hw-model/runtime/clock.h"

namespace softhca {

/// Send doorbell registers of the UAR pages (PRM "BlueFlame"): eight bytes ring for a queue, a
/// wider copy carries the WQE itself, which is then executed as copied. Without write combining a
/// copy comes as stores of eight bytes, one after the other, and its first one looks like a
/// doorbell. So a first store to a page that is known for copies waits for the rest, for kPatience
/// at most; on other pages it rings at once, and what follows it makes the page known.
class BlueFlame {
 public:
  /// Longest time that a doorbell waits for the rest of a copy.
  static constexpr Nanoseconds kPatience = 50'000;

  /// Called for each doorbell, in their order: queue number, and the WQE if it was copied (whole).
  using Ring = std::function<void(std::uint32_t qpn, std::span<const std::uint8_t> wqe)>;

  BlueFlame(std::uint32_t pages, Ring ring) : copied_(pages), ring_(std::move(ring)) {}

  /// A store of eight bytes at `offset` in UAR page `page`, within the send registers.
  void store(std::uint32_t page, std::uint64_t offset, std::span<const std::uint8_t, 8> bytes,
             Nanoseconds now);
  /// Another register is written, or a queue is looked at for another reason: what waits rings.
  void flush();
  /// A doorbell waits for the rest of a copy.
  bool waits() const { return waiting_.has_value(); }
  /// Rings what has waited long enough.
  void expire(Nanoseconds now);
  /// When expire() has something to do; kNever: nothing waits.
  Nanoseconds deadline() const { return waiting_ ? waiting_->deadline : kNever; }
  void reset();

 private:
  struct Copy {
    std::uint64_t start;  ///< From the first UAR page, in bytes.
    std::size_t size;     ///< Bytes that have come.
    std::size_t wanted;   ///< Bytes of the WQE.
    Nanoseconds deadline;
    std::array<std::uint8_t, prm::Uar::blue_flame_half> bytes;
  };

  std::vector<bool> copied_;  ///< Pages on which a WQE was ever copied.
  std::optional<Copy> waiting_;
  std::uint64_t next_store_ = 0;  ///< Where the rest of a copy that has rung already goes on.
  Ring ring_;
};

}  // namespace softhca
