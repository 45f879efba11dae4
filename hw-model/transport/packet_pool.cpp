// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/transport/packet_pool.h"

#include <utility>

namespace softhca {

ib::PacketPtr PacketPool::acquire(std::size_t payload_size) {
  ib::PacketPtr packet;
  if (kept_.empty()) {
    packet = std::make_unique<ib::Packet>();
  } else {
    packet = std::move(kept_.back());
    kept_.pop_back();
    std::vector<std::byte> payload = std::move(packet->payload);
    *packet = ib::Packet{};
    packet->payload = std::move(payload);
  }
  packet->payload.resize(payload_size);
  return packet;
}

void PacketPool::release(ib::PacketPtr packet) {
  if (packet != nullptr && kept_.size() < kMaxKept) kept_.push_back(std::move(packet));
}

}  // namespace softhca
