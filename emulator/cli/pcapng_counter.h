// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace softhca::cli {

/// Follows a pcapng stream and counts its packets (enhanced packet blocks).
class PcapngCounter {
 public:
  explicit PcapngCounter(std::uint64_t limit) : limit_(limit) {}

  /// Takes the next bytes of the stream; returns how many of them lie before the end of the packet
  /// that makes the limit full (all of them, if it is not).
  std::size_t feed(std::span<const std::byte> bytes);
  std::uint64_t packets() const { return packets_; }
  bool full() const { return limit_ != 0 && packets_ >= limit_; }

 private:
  static constexpr std::uint32_t kEnhancedPacket = 6;
  static constexpr std::size_t kHead = 8;  // block type, block length: native byte order

  void read_head();

  std::uint64_t limit_;  // 0: none
  std::uint64_t packets_ = 0;
  std::byte head_[kHead]{};
  std::size_t head_size_ = 0;
  std::uint64_t body_left_ = 0;
  bool is_packet_ = false;
};

}  // namespace softhca::cli
