// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <array>
#include <cstring>

#include "hw-model/ib/codec.h"
#include "hw-model/ib/opcodes.h"
#include "hw-model/ib/psn.h"
#include "hw-model/transport/direct_wqe.h"
#include "hw-model/transport/queue_pair.h"
#include "hw-model/transport/requester.h"

// Messages of one packet, handed to the peer's responder without one (ib::DirectReceiver).
namespace softhca {

using prm::WqeOpcode;

/// Nothing is outstanding, so that requests cannot overtake others, and none has to be sent again.
bool Requester::may_go_directly() const {
  return qp_.service() == ib::Service::rc && qp_.state == prm::QpState::rts && window_.empty() &&
         !rnr_wait_ && !waiting_;
}

/// The way to the peer, for this turn: where it is free nothing can happen to it before the turn
/// ends. Every check that packets there and acknowledges back are subject to is made once.
bool Requester::open_way(DirectWay& way) {
  const ib::Destination peer = qp_.destination();
  way.receiver = qp_.core().port.open_way(peer);
  if (way.receiver == nullptr) return false;
  way.has_grh = peer.has_grh;
  const ib::Destination back = way.receiver->answers_to();
  way.answer_has_grh = back.has_grh;
  const bool returns =
      back.qpn == qp_.number() && back.slid == peer.dlid && pkeys_match(peer.pkey, back.pkey);
  if (!returns) way.receiver = nullptr;
  return returns;
}

void Requester::run_directly(Quantum& quantum) {
  DirectWay way;
  const std::uint32_t mtu = qp_.mtu();
  while (!quantum.spent() && qp_.sq.has_work()) {
    const std::byte* block = qp_.sq.peek(qp_.params.buffer);
    if (block == nullptr) break;
    // The driver may be writing there: it is read once.
    alignas(16) std::array<std::uint8_t, prm::kWqeBasicBlock> copy;
    std::memcpy(copy.data(), block, copy.size());
    DirectWqe wqe;
    if (!wqe.parse(copy.data()) || wqe.length > mtu) break;
    if (way.receiver == nullptr && !open_way(way)) break;
    const bool done =
        wqe.opcode == WqeOpcode::rdma_read ? read_directly(wqe, way) : send_directly(wqe, way);
    if (!done) break;
    finish_directly(wqe);
    quantum.charge_wqe();
    quantum.charge_packet(wqe.length);
  }
  if (way.there.packets != 0) qp_.core().port.count_way(way.there, way.back);
}

bool Requester::send_directly(const DirectWqe& wqe, DirectWay& way) {
  const std::byte* data = wqe.data;
  if (data == nullptr) {
    data = qp_.core().mkeys.quick_span(wqe.lkey, qp_.memory_context(), wqe.address, wqe.length,
                                       MemoryAccess::local_read);
  }
  if (data == nullptr) return false;
  const bool done = way.receiver->execute({.opcode = wqe.request_opcode,
                                           .solicited = wqe.solicited,
                                           .psn = next_psn_,
                                           .immediate = wqe.immediate,
                                           .va = wqe.remote_address,
                                           .rkey = wqe.rkey,
                                           .data = data,
                                           .length = wqe.length});
  if (!done) return false;
  qp_.counters.bytes_sent += wqe.length;
  ++way.there.packets;
  way.there.words += ib::wire_words(wqe.request_opcode, way.has_grh, wqe.length);
  ++way.back.packets;
  way.back.words += ib::wire_words(ib::make_opcode(ib::Service::rc, ib::Operation::acknowledge),
                                   way.answer_has_grh, 0);
  return true;
}

bool Requester::read_directly(const DirectWqe& wqe, DirectWay& way) {
  // The CQE takes the data of short ones.
  if (wqe.length <= qp_.params.cs_req) return false;
  std::byte* to = qp_.core().mkeys.quick_span(wqe.lkey, qp_.memory_context(), wqe.address,
                                              wqe.length, MemoryAccess::local_write);
  if (to == nullptr) return false;
  const std::byte* from = way.receiver->read(next_psn_, wqe.remote_address, wqe.rkey, wqe.length);
  if (from == nullptr) return false;
  copy_ordered(to, from, wqe.length);
  qp_.counters.bytes_received += wqe.length;
  ++way.there.packets;
  way.there.words += ib::wire_words(wqe.request_opcode, way.has_grh, 0);
  ++way.back.packets;
  way.back.words +=
      ib::wire_words(ib::make_opcode(ib::Service::rc, ib::Operation::rdma_read_response_only),
                     way.answer_has_grh, wqe.length);
  return true;
}

/// Sent, answered and done.
void Requester::finish_directly(const DirectWqe& wqe) {
  const std::uint16_t index = qp_.sq.take_block();
  next_psn_ = ib::psn_add(next_psn_, 1);
  una_ = sent_end_ = asked_end_ = next_psn_;
  went_back_ = false;
  start();
  ++qp_.counters.packets_sent;
  ++qp_.counters.packets_received;
  ++qp_.counters.messages_sent;
  if (is_signalled(wqe.completion)) qp_.complete_send(index, wqe.opcode, wqe.length);
}

}  // namespace softhca
