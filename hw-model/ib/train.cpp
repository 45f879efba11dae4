// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/ib/train.h"

#include "hw-model/ib/codec.h"
#include "hw-model/ib/opcodes.h"
#include "hw-model/ib/psn.h"

namespace softhca::ib {
namespace {

/// Opcode of the packets between the first and the last of the message that `opcode` is of.
std::uint8_t middle_of(std::uint8_t opcode) {
  const Service service = service_of(opcode);
  if (is_rdma_read_response(opcode)) {
    return make_opcode(service, Operation::rdma_read_response_middle);
  }
  return make_opcode(service,
                     is_send(opcode) ? Operation::send_middle : Operation::rdma_write_middle);
}

}  // namespace

std::size_t wire_size(const Packet& packet) {
  std::size_t size = encoded_size(packet);
  if (packet.count == 1) return size;
  // So far with the headers of the first packet alone; full segments need no pad.
  const std::size_t link_headers = kLrhSize + (packet.path.has_grh ? kGrhSize : 0);
  const std::size_t around = link_headers + kIcrcSize + kVcrcSize;
  size += around + transport_header_size(packet.last_opcode);
  return size +
         (packet.count - 2U) * (around + transport_header_size(middle_of(packet.last_opcode)));
}

PacketPtr take_first(Packet& train, PacketPool& pool) {
  PacketPtr first = pool.acquire(0);
  static_cast<PacketHeaders&>(*first) = train;
  first->count = 1;
  first->bth.ack_req = false;
  first->bth.solicited = false;
  train.payload.move_front(train.segment, first->payload);
  --train.count;
  train.bth.psn = psn_add(train.bth.psn, 1);
  train.bth.opcode = train.count == 1 ? train.last_opcode : middle_of(train.last_opcode);
  return first;
}

}  // namespace softhca::ib
