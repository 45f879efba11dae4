// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <vector>

#include "hw-model/ib/packet.h"

namespace softhca::ib {

/// Packets that were consumed, kept for the next ones with the memory of their payload; a bounded
/// number of them. The ports of a fabric share one: packets are filled at one port and used up at
/// another.
class PacketPool {
 public:
  /// A packet with default headers and `payload_size` payload bytes of any value.
  PacketPtr acquire(std::size_t payload_size);
  void release(PacketPtr packet);

 private:
  static constexpr std::size_t kMaxKept = 1024;
  std::vector<PacketPtr> kept_;
};

}  // namespace softhca::ib
