// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/transport/responder.h"

#include <algorithm>

#include "hw-model/ib/opcodes.h"
#include "hw-model/ib/psn.h"
#include "hw-model/ib/train.h"
#include "hw-model/transport/queue_pair.h"

// Checks of request packets, in the order of IBA 9.7.4.1 (RC) and 9.8.3 (UC, UD).
namespace softhca {

void Responder::reset(std::uint32_t expected_psn) {
  expected_psn_ = expected_psn;
  msn_ = 0;
  message_ = Message::none;
  discarding_ = true;
  received_ = 0;
  has_current_ = false;
  nak_sent_ = false;
  rnr_gap_ = false;
  closed_ = false;
  resources_.clear();
  next_resource_ = 0;
  stop();
}

void Responder::close() {
  closed_ = true;
  ack_due_ = false;
}

void Responder::stop() {
  responses_.clear();
  nak_.reset();
  ack_due_ = false;
  waiting_ = false;
}

Handled Responder::handle_request(ib::Packet& packet) {
  return qp_.is_reliable() ? handle_reliable(packet) : handle_unreliable(packet);
}

Handled Responder::handle_reliable(ib::Packet& packet) {
  const std::int32_t distance = ib::psn_diff(packet.bth.psn, expected_psn_);
  if (distance > 0) {
    qp_.counters.packets_dropped += packet.count;
    if (!rnr_gap_) qp_.q_counters().out_of_sequence += packet.count;
    nak_sequence();
    return Handled::done;
  }
  if (packet.count > 1 && (distance < 0 || !train_valid(packet))) return Handled::one_by_one;
  if (distance < 0) {
    handle_duplicate(packet);
    return Handled::done;
  }
  nak_sent_ = false;
  rnr_gap_ = false;
  nak_.reset();
  if (!sequence_valid(packet) || (packet.count == 1 && !length_valid(packet)) ||
      (qp_.is_xrc() && !srq_valid(packet))) {
    if (packet.count > 1) return Handled::one_by_one;
    reject(packet.bth.psn, ib::NakCode::invalid_request);
    return Handled::done;
  }
  return execute(packet);
}

/// XRC (IBA A14): every request names an SRQ of the target's XRC domain, and all packets of a
/// message the same one.
bool Responder::srq_valid(const ib::Packet& packet) {
  if (ib::starts_message(packet.bth.opcode)) {
    srqn_ = packet.xrc_srqn;
  } else if (packet.xrc_srqn != srqn_) {
    return false;
  }
  return qp_.xrc_srq(packet.xrc_srqn) != nullptr;
}

/// UC: a gap costs the messages it touches, nothing is answered (IBA 9.8.2.2.1, 9.8.3).
Handled Responder::handle_unreliable(ib::Packet& packet) {
  const bool starts = ib::starts_message(packet.bth.opcode);
  if (packet.bth.psn != expected_psn_) {
    ++qp_.q_counters().out_of_sequence;
    message_ = Message::none;
    discarding_ = true;
  }
  if (starts) {
    message_ = Message::none;  // A first packet inside a message ends that message.
    discarding_ = false;
  }
  if (discarding_ || !sequence_valid(packet) || !length_valid(packet)) {
    message_ = Message::none;
    discarding_ = true;
    expected_psn_ = ib::psn_add(packet.bth.psn, 1);
    ++qp_.counters.packets_dropped;
    return Handled::done;
  }
  expected_psn_ = packet.bth.psn;
  return execute(packet);
}

/// IBA 9.7.4.1.2: first, middle, last and only in their order.
bool Responder::sequence_valid(const ib::Packet& packet) const {
  const std::uint8_t opcode = packet.bth.opcode;
  if (ib::starts_message(opcode)) return message_ == Message::none;
  if (ib::is_send(opcode)) return message_ == Message::send;
  if (ib::is_rdma_write(opcode)) return message_ == Message::write;
  return false;
}

/// IBA 9.7.4.1.6: first and middle packets are full, last ones not empty, none longer than the path
/// MTU.
bool Responder::length_valid(const ib::Packet& packet) const {
  const std::uint8_t opcode = packet.bth.opcode;
  const std::size_t size = packet.payload.size();
  if (!ib::has_payload(opcode)) return size == 0;
  if (!ib::ends_message(opcode)) return size == qp_.mtu();
  return size <= qp_.mtu() && (ib::is_only(opcode) || size != 0);
}

/// True if no packet of the train could be refused for its length or its place.
bool Responder::train_valid(const ib::Packet& train) const {
  const std::uint64_t size = train.payload.size();
  const std::uint64_t full = std::uint64_t{train.segment} * train.count;
  if (train.segment != qp_.mtu() || size > full || size <= full - train.segment) return false;
  return size == full || ib::ends_message(train.last_opcode);
}

Handled Responder::execute(ib::Packet& packet) {
  const std::uint8_t opcode = packet.bth.opcode;
  if (ib::is_send(opcode)) return execute_send(packet);
  if (ib::is_rdma_write(opcode)) return execute_write(packet);
  if (ib::is_rdma_read_request(opcode)) return execute_read(packet);
  if (ib::is_atomic(opcode)) return execute_atomic(packet);
  reject(packet.bth.psn, ib::NakCode::invalid_request);
  return Handled::done;
}

/// The expected packet has been executed.
void Responder::accept(std::uint32_t psn_count) {
  expected_psn_ = ib::psn_add(expected_psn_, psn_count);
}

/// Fatal NAK: the QP fails, the requester is told (IBA 9.7.5.2.4, 9.9.3). UC only drops.
void Responder::reject(std::uint32_t psn, ib::NakCode code) {
  ++qp_.counters.packets_dropped;
  if (!qp_.is_reliable()) {
    message_ = Message::none;
    discarding_ = true;
    expected_psn_ = ib::psn_add(psn, 1);
    return;
  }
  ++(code == ib::NakCode::remote_access_error ? qp_.q_counters().resp_remote_access_errors
                                              : qp_.q_counters().resp_remote_invalid_request);
  nak_ = Nak{psn, ib::nak_syndrome(code)};
  qp_.fail(code == ib::NakCode::remote_access_error ? EventType::wq_access_error
                                                    : EventType::wq_invalid_request);
}

/// One per gap (IBA 9.7.5.2.5).
void Responder::nak_sequence() {
  if (nak_sent_) return;
  nak_sent_ = true;
  nak_ = Nak{expected_psn_, ib::nak_syndrome(ib::NakCode::psn_sequence_error)};
  ++qp_.counters.sequence_naks_sent;
  qp_.core().schedule(qp_);
}

void Responder::nak_rnr() {
  // What follows the refused packet is dropped silently.
  nak_sent_ = true;
  rnr_gap_ = true;
  nak_ = Nak{expected_psn_, ib::make_syndrome(ib::AethKind::rnr_nak, qp_.attributes.min_rnr_nak)};
  ++qp_.counters.rnr_naks_sent;
  qp_.core().schedule(qp_);
}

/// The receive WQE in use completes in error, the QP fails.
void Responder::fail_receive(Failure failure, ib::NakCode code) {
  if (qp_.is_reliable()) nak_ = Nak{expected_psn_, ib::nak_syndrome(code)};
  has_current_ = false;
  qp_.complete_receive_error(current_.index, failure);
  qp_.enter_error();
}

}  // namespace softhca
