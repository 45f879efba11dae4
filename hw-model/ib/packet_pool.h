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
  /// A packet with these headers and `payload_size` payload bytes of any value.
  PacketPtr acquire(const PacketHeaders& headers, std::size_t payload_size);
  /// The same with default headers.
  PacketPtr acquire(std::size_t payload_size) { return acquire(kFresh, payload_size); }
  void release(PacketPtr packet);

 private:
  static constexpr std::size_t kMaxKept = 1024;
  static constexpr PacketHeaders kFresh{};
  std::vector<PacketPtr> kept_;
};

}  // namespace softhca::ib
