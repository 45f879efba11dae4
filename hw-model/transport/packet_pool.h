// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <vector>

#include "hw-model/ib/packet.h"

namespace softhca {

/// Packets that were consumed, kept for the next ones with the memory of their payload. Packets
/// wander from the pool of their sender to that of their receiver; each keeps a bounded number.
class PacketPool {
 public:
  /// A packet with default headers and `payload_size` payload bytes of any value.
  ib::PacketPtr acquire(std::size_t payload_size);
  void release(ib::PacketPtr packet);

 private:
  static constexpr std::size_t kMaxKept = 256;
  std::vector<ib::PacketPtr> kept_;
};

}  // namespace softhca
