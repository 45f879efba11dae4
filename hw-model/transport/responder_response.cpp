// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <algorithm>

#include "hw-model/ib/opcodes.h"
#include "hw-model/ib/psn.h"
#include "hw-model/transport/queue_pair.h"
#include "hw-model/transport/responder.h"

// Responses and duplicates (IBA 9.7.5.1).
namespace softhca {
namespace {

constexpr std::uint8_t kAckSyndrome = ib::make_syndrome(ib::AethKind::ack, ib::kCreditsInvalid);

}  // namespace

/// Room for one more READ or atomic (IBA 9.7.4.1.8). A requester that keeps to the limit and sends
/// a new one has had the answer to the oldest that it asked for again.
bool Responder::resource_free() {
  const std::size_t limit = std::size_t{1} << qp_.attributes.log_rra_max;
  if (responses_.size() >= limit && responses_.front().duplicate)
    responses_.erase(responses_.begin());
  return responses_.size() < limit;
}

void Responder::remember(const Resource& resource) {
  const std::size_t limit = std::size_t{1} << qp_.attributes.log_rra_max;
  if (resources_.size() < limit) {
    resources_.push_back(resource);
    return;
  }
  next_resource_ %= limit;
  resources_[next_resource_++] = resource;
}

/// Responses leave in PSN order. One for a duplicate takes the place of what overlaps it and has
/// not left.
void Responder::enqueue(Response response) {
  response.serial = next_serial_++;
  std::erase_if(responses_, [&](const Response& other) {
    return ib::psn_in(other.psn, response.psn, response.count) ||
           ib::psn_in(response.psn, other.psn, other.count);
  });
  // More than a peer may have outstanding are repeats of what waits; it asks again for what it
  // misses.
  const std::size_t limit = std::size_t{1} << qp_.attributes.log_rra_max;
  if (response.duplicate && responses_.size() >= limit) return;
  const auto later = std::find_if(responses_.begin(), responses_.end(), [&](const Response& other) {
    return ib::psn_after(other.psn, response.psn);
  });
  responses_.insert(later, response);
  qp_.core().schedule(qp_);
}

/// IBA 9.7.5.1.4: SEND and WRITE are acknowledged again, READ is executed again, an atomic is
/// answered from the saved result.
void Responder::handle_duplicate(const ib::Packet& packet) {
  ++qp_.counters.duplicate_requests;
  ++qp_.q_counters().duplicate_request;
  const std::uint8_t opcode = packet.bth.opcode;
  if (ib::is_rdma_read_request(opcode)) {
    duplicate_read(packet);
  } else if (ib::is_atomic(opcode)) {
    duplicate_atomic(packet);
  } else if (ib::is_send(opcode) || ib::is_rdma_write(opcode)) {
    ack_due_ = true;
    qp_.core().owe_ack(qp_);
  }
}

void Responder::duplicate_read(const ib::Packet& packet) {
  const ib::Reth& reth = packet.reth;
  const std::uint32_t psn = packet.bth.psn;
  if (!qp_.attributes.remote_read || reth.length > 1U << 31) return;
  const std::uint32_t count = ib::packet_count(reth.length, qp_.mtu());
  const auto known = std::any_of(resources_.begin(), resources_.end(), [&](const Resource& r) {
    const auto skipped = static_cast<std::uint32_t>(ib::psn_diff(psn, r.psn));
    return !r.atomic && ib::psn_in(psn, r.psn, r.count) && count <= r.count - skipped;
  });
  if (!known) {
    ++qp_.counters.packets_dropped;
    return;
  }
  if (qp_.is_xrc() && qp_.xrc_srq(packet.xrc_srqn) == nullptr) {
    reject(psn, ib::NakCode::invalid_request);
    return;
  }
  const MemoryContext context = qp_.remote_context(packet);
  const MemoryStatus status =
      qp_.core().mkeys.check(reth.rkey, context, reth.va, reth.length, MemoryAccess::remote_read);
  if (status != MemoryStatus::ok) {
    reject(psn, ib::NakCode::remote_access_error);
    return;
  }
  Response response;
  response.psn = psn;
  response.count = count;
  response.va = reth.va;
  response.rkey = reth.rkey;
  response.pd = context.pd;
  response.length = reth.length;
  response.msn = msn_;
  response.duplicate = true;
  enqueue(response);
}

void Responder::duplicate_atomic(const ib::Packet& packet) {
  const auto saved = std::find_if(resources_.begin(), resources_.end(), [&](const Resource& r) {
    return r.atomic && r.psn == packet.bth.psn;
  });
  if (saved == resources_.end()) {
    ++qp_.counters.packets_dropped;
    return;
  }
  Response response;
  response.psn = saved->psn;
  response.atomic = true;
  response.value = saved->value;
  response.msn = msn_;
  response.duplicate = true;
  enqueue(response);
}

bool Responder::run(Quantum& quantum) {
  while (owes() && !waiting_) {
    if (quantum.spent() || !qp_.core().port.ready()) return true;
    if (!send_response(quantum)) return false;
  }
  return false;
}

/// False: parked, or nothing left.
bool Responder::send_response(Quantum& quantum) {
  if (!responses_.empty()) {
    Response& response = responses_.front();
    if (!response.atomic) return send_read_packet(response, quantum);
    ib::Packet& packet = qp_.make_packet(
        ib::make_opcode(qp_.service(), ib::Operation::atomic_acknowledge), response.psn);
    packet.aeth = {kAckSyndrome, response.msn};
    packet.atomic_ack = response.value;
    responses_.erase(responses_.begin());
    quantum.charge_packet(0);
    qp_.send_packet(packet);
    return true;
  }
  if (nak_) {
    const Nak nak = *nak_;
    nak_.reset();
    ack_due_ = false;
    quantum.charge_packet(0);
    send_ack(nak.psn, nak.syndrome);
    return true;
  }
  if (!ack_due_) return false;
  // One ACK for everything that arrived since the last (IBA 9.7.5.1.2 "coalesced").
  ack_due_ = false;
  quantum.charge_packet(0);
  send_ack(ib::psn_add(expected_psn_, ib::kPsnMask), kAckSyndrome);
  return true;
}

void Responder::acknowledge() {
  // One packet finds room behind a full link too: ready() asks for no more work, it is no wall.
  // A NAK that waits is for a later request; what came before it is done all the same.
  if (!ack_due_ || !responses_.empty()) return;
  ack_due_ = false;
  send_ack(ib::psn_add(expected_psn_, ib::kPsnMask), kAckSyndrome);
}

bool Responder::send_read_packet(Response& response, Quantum& quantum) {
  const std::uint32_t mtu = qp_.mtu();
  const std::uint64_t offset = std::uint64_t{response.sent} * mtu;
  const std::uint64_t left = response.length - offset;
  const std::uint32_t psn = ib::psn_add(response.psn, response.sent);
  ib::Packet& packet = qp_.make_packet(0, psn);
  std::uint32_t count = 1;
  if (left > mtu && qp_.core().port.takes_trains()) {
    count = std::min({response.count - response.sent, quantum.packets, kMaxTrain});
  }
  std::uint64_t size = std::min(left, std::uint64_t{count} * mtu);
  ReadPiece piece{{.pd = response.pd, .qpn = qp_.number()},
                  response.rkey,
                  MemoryAccess::remote_read,
                  response.va + offset,
                  size,
                  std::min(left, std::uint64_t{quantum.packets} * mtu),
                  1ULL << 63 | response.serial,
                  offset};
  MemoryStatus status = MemoryStatus::ok;
  if (size != 0 && !qp_.core().view_payload(piece, packet.payload)) {
    count = 1;
    piece.length = size = std::min<std::uint64_t>(left, mtu);
    packet.payload.resize(size);
    status = qp_.core().read_payload(qp_, piece, packet.payload.bytes());
  }
  const bool first = response.sent == 0;
  const bool last = response.sent + count == response.count;
  const auto opcode_at = [&](bool begins, bool ends) {
    const auto operation = begins ? (ends ? ib::Operation::rdma_read_response_only
                                          : ib::Operation::rdma_read_response_first)
                                  : (ends ? ib::Operation::rdma_read_response_last
                                          : ib::Operation::rdma_read_response_middle);
    return ib::make_opcode(qp_.service(), operation);
  };
  packet.bth.opcode = opcode_at(first, last && count == 1);
  if (count > 1) {
    packet.count = static_cast<std::uint16_t>(count);
    packet.segment = static_cast<std::uint16_t>(mtu);
    packet.last_opcode = opcode_at(false, last);
  }
  if (status != MemoryStatus::ok) {
    if (status == MemoryStatus::pending) {
      waiting_ = true;
      qp_.core().park(qp_);
      return false;
    }
    // The key went away while it was being read.
    responses_.clear();
    if (!closed_) {
      reject(psn, ib::NakCode::remote_access_error);
    } else if (nak_) {
      nak_->psn = psn;
    }
    return true;
  }
  packet.aeth = {kAckSyndrome, response.msn};
  response.sent += count;
  if (last) responses_.erase(responses_.begin());
  quantum.charge_packets(count, size);
  qp_.send_packet(packet);
  return true;
}

void Responder::send_ack(std::uint32_t psn, std::uint8_t syndrome) {
  ib::Packet& packet =
      qp_.make_packet(ib::make_opcode(qp_.service(), ib::Operation::acknowledge), psn);
  packet.aeth = {syndrome, msn_};
  qp_.send_packet(packet);
}

}  // namespace softhca
