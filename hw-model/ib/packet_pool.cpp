// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/ib/packet_pool.h"

#include <utility>

namespace softhca::ib {

PacketPtr PacketPool::acquire(const PacketHeaders& headers, std::size_t payload_size) {
  PacketPtr packet;
  if (kept_.empty()) {
    packet = std::make_unique<Packet>();
  } else {
    packet = std::move(kept_.back());
    kept_.pop_back();
  }
  static_cast<PacketHeaders&>(*packet) = headers;
  packet->payload.resize(payload_size);
  return packet;
}

void PacketPool::release(PacketPtr packet) {
  if (packet == nullptr || kept_.size() >= kMaxKept) return;
  packet->payload.clear();
  kept_.push_back(std::move(packet));
}

}  // namespace softhca::ib
