// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/cli/pcapng_counter.h"

#include <algorithm>
#include <cstring>

namespace softhca::cli {

void PcapngCounter::read_head() {
  std::uint32_t type = 0;
  std::uint32_t length = 0;
  std::memcpy(&type, head_, sizeof(type));
  std::memcpy(&length, head_ + sizeof(type), sizeof(length));
  is_packet_ = type == kEnhancedPacket;
  body_left_ = std::max<std::uint64_t>(length, kHead) - kHead;
}

std::size_t PcapngCounter::feed(std::span<const std::byte> bytes) {
  std::size_t used = 0;
  while (used < bytes.size() && !full()) {
    if (head_size_ < kHead) {
      head_[head_size_++] = bytes[used++];
      if (head_size_ == kHead) read_head();
    } else {
      const auto step = std::min<std::uint64_t>(body_left_, bytes.size() - used);
      used += step;
      body_left_ -= step;
    }
    if (head_size_ == kHead && body_left_ == 0) {
      head_size_ = 0;
      if (is_packet_) ++packets_;
    }
  }
  return used;
}

}  // namespace softhca::cli
