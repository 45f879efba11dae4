// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include "hw-model/ib/packet.h"
#include "hw-model/ib/packet_pool.h"

namespace softhca::ib {

/// BTH.OpCode of the last packet that `packet` stands for.
inline std::uint8_t last_opcode(const PacketHeaders& packet) {
  return packet.count > 1 ? packet.last_opcode : packet.bth.opcode;
}

/// Bytes that the packet, or all packets of the train, take on a link: encoded_size() of each.
std::size_t wire_size(const Packet& packet);

/// Takes the first packet out of a train, which then stands for one less; what is left may be a
/// single packet. A lent payload is lent to both.
PacketPtr take_first(Packet& train, PacketPool& pool);

}  // namespace softhca::ib
