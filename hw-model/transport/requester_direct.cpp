// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <array>
#include <cstring>

#include "hw-model/ib/codec.h"
#include "hw-model/ib/message_words.h"
#include "hw-model/ib/opcodes.h"
#include "hw-model/ib/psn.h"
#include "hw-model/transport/direct_wqe.h"
#include "hw-model/transport/queue_pair.h"
#include "hw-model/transport/requester.h"

// Messages handed to the peer's responder without packets.
namespace softhca {

using prm::WqeOpcode;

/// Nothing is outstanding, so that requests cannot overtake others, and none has to be sent again.
bool Requester::may_go_directly() const {
  return qp_.service() == ib::Service::rc && qp_.state == prm::QpState::rts && window_.empty() &&
         !rnr_wait_ && !waiting_;
}

/// The way to the peer: where it is free nothing can happen to it before this turn ends. Every
/// check that packets there and acknowledges back are subject to is made, once until something
/// changes.
bool Requester::find_way() {
  if (way_.epoch == qp_.core().way_epoch) return way_.peer.responder != nullptr;
  const ib::Destination peer = qp_.destination();
  bool found = qp_.core().port.open_way(peer, way_);
  if (found) {
    const ib::Destination& back = way_.peer.answers_to;
    found = back.qpn == qp_.number() && back.slid == peer.dlid && pkeys_match(peer.pkey, back.pkey);
  }
  if (!found) way_.peer.responder = nullptr;
  way_.epoch = qp_.core().way_epoch;
  return found;
}

bool Requester::run_at_once(Quantum& quantum) {
  if (!may_go_directly()) return false;
  run_directly(quantum);
  if (!qp_.sq.has_work()) return true;
  needs_packets_ = !quantum.spent();
  return false;
}

/// Where the message lies here; null: not in one piece, or it may not be used so.
[[gnu::always_inline]] inline std::byte* Requester::local_span(const DirectWqe& wqe,
                                                               MemoryAccess access) const {
  MkeyTable& mkeys = qp_.core().mkeys;
  std::byte* known = mkeys.quick_span(wqe.lkey, qp_.params.pd, qp_.number(), wqe.address,
                                      wqe.request.length, access);
  return known != nullptr ? known : find_local_span(wqe, access);
}

[[gnu::noinline]] std::byte* Requester::find_local_span(const DirectWqe& wqe,
                                                        MemoryAccess access) const {
  MemoryStatus status = MemoryStatus::ok;
  return qp_.core().mkeys.try_span(wqe.lkey, qp_.memory_context(), wqe.address, wqe.request.length,
                                   access, status);
}

[[gnu::always_inline]] inline bool Requester::send_directly(DirectWqe& wqe) {
  ib::DirectRequest& request = wqe.request;
  if (request.data == nullptr) request.data = local_span(wqe, MemoryAccess::local_read);
  if (request.data == nullptr) return false;
  request.psn = next_psn_;
  const bool done = way_.peer.responder->execute(request);
  if (done) qp_.counters.bytes_sent += wqe.request.length;
  return done;
}

/// Sent, answered and done: the WQE's index.
inline std::uint16_t Requester::finish_directly(std::uint32_t packets) {
  next_psn_ = ib::psn_add(next_psn_, packets);
  una_ = sent_end_ = asked_end_ = next_psn_;
  return qp_.sq.take_block();
}

[[gnu::noinline]] void Requester::run_directly(Quantum& quantum) {
  std::uint64_t messages = 0;
  ib::WayTraffic traffic;
  const std::uint32_t mtu = qp_.path_mtu();
  while (qp_.sq.has_work() && !quantum.spent() && find_way()) {
    const std::byte* block = qp_.sq.peek(qp_.params.buffer);
    if (block == nullptr) break;
    // The driver may be writing there: it is read once.
    alignas(16) std::array<std::uint8_t, prm::kWqeBasicBlock> copy;
    std::memcpy(copy.data(), block, copy.size());
    DirectWqe wqe;
    if (!wqe.parse(copy.data())) break;
    if (wqe.request.length > mtu) {
      if (!run_segmented(wqe, quantum)) break;
      continue;
    }
    const bool reads = wqe.opcode == WqeOpcode::rdma_read;
    if (!(reads ? read_directly(wqe) : send_directly(wqe))) break;
    const std::uint16_t index = finish_directly(1);
    if (is_signalled(wqe.completion)) {
      qp_.complete_send_quickly(index, wqe.opcode, wqe.request.length);
    }
    const auto answer = reads ? ib::Operation::rdma_read_response_only : ib::Operation::acknowledge;
    traffic.there.words +=
        ib::wire_words(wqe.request.opcode, way_.has_grh, reads ? 0 : wqe.request.length);
    traffic.back.words +=
        ib::wire_words(ib::make_opcode(ib::Service::rc, answer), way_.peer.answers_to.has_grh,
                       reads ? wqe.request.length : 0);
    ++messages;
    quantum.charge_message(wqe.request.length);
  }
  if (messages == 0) return;
  traffic.there.packets = messages;
  traffic.back.packets = messages;
  count_directly(traffic, messages);
}

[[gnu::always_inline]] inline void Requester::count_directly(const ib::WayTraffic& traffic,
                                                             std::uint64_t messages) {
  qp_.counters.packets_sent += traffic.there.packets;
  qp_.counters.packets_received += traffic.back.packets;
  qp_.counters.messages_sent += messages;
  ib::count_way(way_, traffic);
  // What the last answer said of retries (progress()).
  went_back_ = false;
  start();
}

/// A message of several packets, of as many as a train has at most. One ACK answers all packets of
/// a SEND or WRITE.
[[gnu::noinline]] bool Requester::run_segmented(DirectWqe& wqe, Quantum& quantum) {
  constexpr std::uint8_t kAcknowledge =
      ib::make_opcode(ib::Service::rc, ib::Operation::acknowledge);
  constexpr std::uint8_t kResponse =
      ib::make_opcode(ib::Service::rc, ib::Operation::rdma_read_response_only);
  ib::DirectRequest& request = wqe.request;
  const std::uint32_t mtu = qp_.path_mtu();
  if (request.length > mtu * kMaxTrain) return false;
  request.packets = ib::packet_count(request.length, mtu);
  const bool reads = wqe.opcode == WqeOpcode::rdma_read;
  if (!(reads ? read_directly(wqe) : send_directly(wqe))) return false;
  const std::uint16_t index = finish_directly(request.packets);
  if (is_signalled(wqe.completion)) qp_.complete_send(index, wqe.opcode, request.length);
  quantum.charge_wqe();
  quantum.charge_packets(request.packets, request.length);
  const auto words = [&](std::uint8_t opcode, bool has_grh) {
    return ib::message_words(opcode, has_grh, request.length, request.packets, mtu);
  };
  ib::WayTraffic traffic;
  if (reads) {
    traffic.there = {ib::wire_words(request.opcode, way_.has_grh, 0), 1};
    traffic.back = {words(kResponse, way_.peer.answers_to.has_grh), request.packets};
  } else {
    traffic.there = {words(request.opcode, way_.has_grh), request.packets};
    traffic.back = {ib::wire_words(kAcknowledge, way_.peer.answers_to.has_grh, 0), 1};
  }
  count_directly(traffic, 1);
  return true;
}

bool Requester::read_directly(const DirectWqe& wqe) {
  // The CQE takes the data of short ones.
  if (wqe.request.length <= qp_.params.cs_req) return false;
  std::byte* to = local_span(wqe, MemoryAccess::local_write);
  if (to == nullptr) return false;
  const std::byte* from = way_.peer.responder->read(next_psn_, wqe.request.packets, wqe.request.va,
                                                    wqe.request.rkey, wqe.request.length);
  if (from == nullptr) return false;
  copy_ordered(to, from, wqe.request.length);
  qp_.counters.bytes_received += wqe.request.length;
  return true;
}

}  // namespace softhca
