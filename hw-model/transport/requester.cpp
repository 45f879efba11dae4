// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/transport/requester.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "hw-model/ib/opcodes.h"
#include "hw-model/ib/psn.h"
#include "hw-model/ib/train.h"
#include "hw-model/transport/queue_pair.h"

namespace softhca {
namespace {

using ib::Operation;
using prm::WqeOpcode;

/// PSNs that may be outstanding: bounds what a lost packet costs, and the packets in flight.
constexpr std::int32_t kMaxOutstandingPsns = 512;
/// An acknowledge is asked for at least this often, in packets.
constexpr std::uint32_t kMaxAckInterval = 64;

bool service_has(const QueuePair& qp, WqeOpcode opcode) {
  switch (opcode) {
    case WqeOpcode::nop:
      return true;
    case WqeOpcode::umr:
    case WqeOpcode::local_invalidate:
      return !qp.is_datagram();
    case WqeOpcode::send:
    case WqeOpcode::send_imm:
      return !qp.only_registers();
    case WqeOpcode::rdma_write:
    case WqeOpcode::rdma_write_imm:
      return !qp.is_datagram() && !qp.only_registers();
    case WqeOpcode::send_invalidate:
    case WqeOpcode::rdma_read:
    case WqeOpcode::atomic_cmp_swap:
    case WqeOpcode::atomic_fetch_add:
      return qp.is_reliable();
    default:
      return false;
  }
}

/// Operation of the packet at a place of a SEND or WRITE.
Operation message_operation(WqeOpcode opcode, bool first, bool last) {
  const bool write = opcode == WqeOpcode::rdma_write || opcode == WqeOpcode::rdma_write_imm;
  if (write) {
    const bool immediate = opcode == WqeOpcode::rdma_write_imm;
    if (first && last) {
      return immediate ? Operation::rdma_write_only_immediate : Operation::rdma_write_only;
    }
    if (last) {
      return immediate ? Operation::rdma_write_last_immediate : Operation::rdma_write_last;
    }
    return first ? Operation::rdma_write_first : Operation::rdma_write_middle;
  }
  if (!last) return first ? Operation::send_first : Operation::send_middle;
  switch (opcode) {
    case WqeOpcode::send_imm:
      return first ? Operation::send_only_immediate : Operation::send_last_immediate;
    case WqeOpcode::send_invalidate:
      return first ? Operation::send_only_invalidate : Operation::send_last_invalidate;
    default:
      return first ? Operation::send_only : Operation::send_last;
  }
}

SendFormat format_of(const QueuePair& qp) {
  if (qp.is_datagram()) return SendFormat::datagram;
  return qp.is_xrc() ? SendFormat::xrc : SendFormat::connected;
}

}  // namespace

SendWqe& SendWindow::next() {
  if (slots_.size() == size() && slots_.size() < kCapacity) {
    std::vector<SendWqe> grown(std::max<std::size_t>(4, slots_.size() * 2));
    for (std::uint64_t number = begin_; number != end_; ++number) {
      grown[number % grown.size()] = std::move(at(number));
    }
    slots_ = std::move(grown);
  }
  return at(end_);
}

void Requester::reset(std::uint32_t psn) {
  window_.clear();
  send_at_ = window_.end();
  send_packet_ = 0;
  next_psn_ = una_ = sent_end_ = asked_end_ = psn;
  outstanding_reads_ = 0;
  rnr_wait_ = false;
  waiting_ = false;
  needs_packets_ = false;
  went_back_ = false;
  deadline_ = kNever;
}

void Requester::start() {
  retries_left_ = qp_.attributes.retry_count;
  rnr_retries_left_ = qp_.attributes.rnr_retry;
}

void Requester::stop() {
  rnr_wait_ = false;
  deadline_ = kNever;
}

bool Requester::idle() const {
  return window_.empty() && !qp_.sq.has_work();
}

bool Requester::may_send() const {
  if (rnr_wait_ || waiting_) return false;
  // In SQD what was begun is finished, nothing new is taken (IBA 10.3.1.5).
  return qp_.state == prm::QpState::rts ||
         (qp_.state == prm::QpState::sq_drained && send_at_ != window_.end());
}

bool Requester::run(Quantum& quantum) {
  if (!std::exchange(needs_packets_, false) && may_go_directly()) {
    run_directly(quantum);
    if (!qp_.sq.has_work()) return false;
  }
  while (may_send()) {
    if (quantum.spent() || !qp_.core().port.ready()) return true;
    switch (transmit(quantum)) {
      case Step::sent:
        break;
      case Step::pending:
        waiting_ = true;
        qp_.core().park(qp_);
        return false;
      case Step::blocked:
        return false;
    }
  }
  return false;
}

/// Takes the next WQE into the window.
Requester::Step Requester::fetch() {
  if (qp_.state != prm::QpState::rts || window_.full() || !qp_.sq.has_work()) return Step::blocked;
  RawSendWqe raw;
  switch (qp_.sq.take(qp_.params.buffer, raw)) {
    case TakeStatus::pending:
      return Step::pending;
    case TakeStatus::empty:
      return Step::blocked;
    case TakeStatus::error:
      qp_.fail(EventType::wq_catastrophic);
      return Step::blocked;
    case TakeStatus::ok:
      break;
  }
  SendWqe& wqe = window_.next();
  const bool good = parse_send_wqe(raw, format_of(qp_), wqe) && service_has(qp_, wqe.opcode);
  wqe.first_psn = next_psn_;
  window_.push();
  if (!good) {
    fail_wqe(wqe, kLocalQpOperation);
    return Step::sent;
  }
  const std::uint64_t limit = qp_.is_datagram() ? qp_.mtu() : 1ULL << qp_.params.log_msg_max;
  const bool local = wqe.opcode == WqeOpcode::nop || wqe.is_umr();
  if (wqe.length > limit) {
    fail_wqe(wqe, kLocalLength);
    return Step::sent;
  }
  wqe.psn_count = local ? 0 : wqe.is_atomic() ? 1 : ib::packet_count(wqe.length, qp_.mtu());
  next_psn_ = wqe.end_psn();
  return Step::sent;
}

Requester::Step Requester::transmit(Quantum& quantum) {
  if (send_at_ == window_.end()) {
    const Step step = fetch();
    if (step != Step::sent) return step;
    if (send_at_ == window_.end()) return Step::blocked;
  }
  SendWqe& wqe = window_.at(send_at_);
  if (wqe.failed) {
    // Not in front yet: whoever completes what is before it settles.
    if (send_at_ == window_.begin()) settle();
    return Step::blocked;
  }
  if (send_packet_ == 0) {
    // IBA 10.8.3.3: a fenced WQE waits for the READs and atomics before it.
    if (wqe.fence && outstanding_reads_ != 0) return Step::blocked;
    const std::uint32_t limit = 1U << qp_.attributes.log_sra_max;
    if (wqe.needs_response() && outstanding_reads_ >= limit) return Step::blocked;
  }
  if (wqe.psn_count == 0) return execute_local(wqe, quantum);
  const std::uint32_t psn = ib::psn_add(wqe.first_psn, send_packet_);
  if (qp_.is_reliable() && ib::psn_diff(psn, una_) >= kMaxOutstandingPsns) return Step::blocked;
  if (wqe.is_read()) return transmit_read(wqe, quantum);
  if (wqe.is_atomic()) return transmit_atomic(wqe, quantum);
  return qp_.is_datagram() ? transmit_datagram(wqe, quantum) : transmit_message(wqe, quantum);
}

/// Whether one of `count` packets from `psn` on asks for an acknowledge.
bool Requester::wants_ack(std::uint32_t psn, std::uint32_t count, bool last) const {
  if (!qp_.is_reliable()) return false;
  const std::uint32_t interval =
      std::min(kMaxAckInterval, 1U << std::min<std::uint8_t>(qp_.params.log_ack_req_freq, 6));
  return last || (psn + count) / interval != psn / interval;
}

/// A READ may begin in its middle, after part of the response was lost (IBA 9.7.5.1.9).
Requester::Step Requester::transmit_read(SendWqe& wqe, Quantum& quantum) {
  const std::uint64_t offset = std::uint64_t{send_packet_} * qp_.mtu();
  const std::uint32_t psn = ib::psn_add(wqe.first_psn, send_packet_);
  ib::Packet& packet =
      qp_.make_packet(ib::make_opcode(qp_.service(), Operation::rdma_read_request), psn);
  packet.xrc_srqn = wqe.xrc_srqn;
  packet.reth = {wqe.remote_address + offset, wqe.rkey,
                 static_cast<std::uint32_t>(wqe.length - offset)};
  packet.bth.ack_req = true;
  qp_.send_packet(packet);
  quantum.charge_packet(0);
  quantum.charge_wqe();
  ++outstanding_reads_;
  finish_transmit(wqe);
  return Step::sent;
}

Requester::Step Requester::transmit_atomic(SendWqe& wqe, Quantum& quantum) {
  const auto operation =
      wqe.opcode == WqeOpcode::atomic_cmp_swap ? Operation::compare_swap : Operation::fetch_add;
  ib::Packet& packet = qp_.make_packet(ib::make_opcode(qp_.service(), operation), wqe.first_psn);
  packet.xrc_srqn = wqe.xrc_srqn;
  packet.atomic_eth = {wqe.remote_address, wqe.rkey, wqe.swap_add, wqe.compare};
  packet.bth.ack_req = true;
  qp_.send_packet(packet);
  quantum.charge_packet(0);
  quantum.charge_wqe();
  ++outstanding_reads_;
  finish_transmit(wqe);
  return Step::sent;
}

/// Packets of a message with `left` bytes to go that may leave as one train.
std::uint32_t Requester::train_length(std::uint64_t left, std::uint32_t psn,
                                      const Quantum& quantum) const {
  const std::uint32_t mtu = qp_.mtu();
  if (left <= mtu || !qp_.core().port.takes_trains()) return 1;
  const auto window = static_cast<std::uint32_t>(kMaxOutstandingPsns - ib::psn_diff(psn, una_));
  const std::uint32_t most = std::min({quantum.packets, window, kMaxTrain});
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>((left + mtu - 1) / mtu, 1, most));
}

/// Next packet of a SEND or WRITE, or next train of them.
Requester::Step Requester::transmit_message(SendWqe& wqe, Quantum& quantum) {
  const std::uint32_t mtu = qp_.mtu();
  const std::uint64_t offset = std::uint64_t{send_packet_} * mtu;
  const std::uint64_t left = wqe.length - offset;
  const std::uint32_t psn = ib::psn_add(wqe.first_psn, send_packet_);
  std::uint32_t count = qp_.is_reliable() ? train_length(left, psn, quantum) : 1;
  std::uint64_t size = std::min(left, std::uint64_t{count} * mtu);

  ib::Packet& packet = qp_.make_packet(0, psn);
  bool in_place = view(wqe, offset, size, packet.payload);
  if (!in_place && count > 1) {
    count = 1;
    size = mtu;
    in_place = view(wqe, offset, size, packet.payload);
  }
  if (!in_place) {
    packet.payload.resize(size);
    const MemoryStatus status =
        gather(wqe, offset, packet.payload.bytes(), size, std::uint64_t{quantum.packets} * mtu);
    if (status != MemoryStatus::ok) {
      if (status == MemoryStatus::pending) return Step::pending;
      fail_wqe(wqe, kLocalProtection);
      return Step::sent;
    }
  }
  const bool first = send_packet_ == 0;
  const bool last = send_packet_ + count == wqe.psn_count;
  const auto opcode_at = [&](bool begins, bool ends) {
    return ib::make_opcode(qp_.service(), message_operation(wqe.opcode, begins, ends));
  };
  packet.bth.opcode = opcode_at(first, last && count == 1);
  if (count > 1) {
    packet.count = static_cast<std::uint16_t>(count);
    packet.segment = static_cast<std::uint16_t>(mtu);
    packet.last_opcode = opcode_at(false, last);
  }
  packet.xrc_srqn = wqe.xrc_srqn;
  if (ib::has_reth(packet.bth.opcode)) {
    packet.reth = {wqe.remote_address, wqe.rkey, static_cast<std::uint32_t>(wqe.length)};
  }
  const std::uint8_t end_opcode = ib::last_opcode(packet);
  if (ib::has_immediate(end_opcode)) packet.immediate = wqe.immediate;
  if (ib::has_ieth(end_opcode)) packet.invalidate_key = wqe.immediate;
  const bool asks = wants_ack(psn, count, last);
  packet.bth.ack_req = asks;
  packet.bth.solicited = wqe.solicited && last;
  quantum.charge_packets(count, size);
  qp_.send_packet(packet);
  send_packet_ += count;
  if (last) {
    quantum.charge_wqe();
    finish_transmit(wqe);
    return Step::sent;
  }
  const std::uint32_t end = ib::psn_add(psn, count);
  if (ib::psn_after(end, sent_end_)) sent_end_ = end;
  if (asks) {
    asked_end_ = end;
    if (deadline_ == kNever) restart_timer();
  }
  return Step::sent;
}

Requester::Step Requester::transmit_datagram(SendWqe& wqe, Quantum& quantum) {
  const auto operation =
      wqe.opcode == WqeOpcode::send_imm ? Operation::send_only_immediate : Operation::send_only;
  const auto& port = qp_.core().port.attributes();
  const DatagramAddress& to = wqe.address;
  ib::Packet& packet = qp_.make_packet(ib::make_opcode(ib::Service::ud, operation), wqe.first_psn);
  if (!view(wqe, 0, wqe.length, packet.payload)) {
    packet.payload.resize(wqe.length);
    const MemoryStatus status = gather(wqe, 0, packet.payload.bytes(), wqe.length, wqe.length);
    if (status != MemoryStatus::ok) {
      if (status == MemoryStatus::pending) return Step::pending;
      fail_wqe(wqe, kLocalProtection);
      return Step::sent;
    }
  }
  packet.path.slid = qp_.core().source_lid(to.path_bits);
  packet.path.dlid = to.dlid;
  packet.path.sl = to.sl;
  packet.path.has_grh = to.has_grh;
  if (to.has_grh) {
    ib::Grh& grh = packet.path.grh;
    grh.dgid = to.dgid;
    if (to.sgid_index < port.gids.size()) grh.sgid = port.gids[to.sgid_index];
    grh.traffic_class = to.traffic_class;
    grh.flow_label = to.flow_label;
    grh.hop_limit = to.hop_limit;
  }
  packet.bth.dest_qp = to.destination_qpn;
  packet.bth.solicited = wqe.solicited;
  packet.immediate = wqe.immediate;
  // IBA 10.2.5: a Q_Key with the high bit set stands for the QP's own.
  packet.deth.qkey = (to.qkey & 0x80000000U) != 0 ? qp_.attributes.qkey : to.qkey;
  packet.deth.src_qp = qp_.source_qpn();
  if (qp_.params.type == prm::QpServiceType::qp0) packet.vl = 15;
  quantum.charge_packet(wqe.length);
  quantum.charge_wqe();
  qp_.send_packet(packet);
  finish_transmit(wqe);
  return Step::sent;
}

/// NOP or UMR: no packet. What follows in the queue finds the key changed, so the small fence needs
/// nothing more.
Requester::Step Requester::execute_local(SendWqe& wqe, Quantum& quantum) {
  quantum.charge_wqe();
  if (!wqe.sent && wqe.is_umr()) {
    const Step step = execute_umr(wqe, quantum);
    if (step != Step::sent || wqe.failed) return step;
  }
  wqe.sent = true;
  ++send_at_;
  send_packet_ = 0;
  settle();
  return Step::sent;
}

/// Everything of the WQE is with the port.
void Requester::finish_transmit(SendWqe& wqe) {
  wqe.sent = true;
  ++send_at_;
  send_packet_ = 0;
  const std::uint32_t end = wqe.end_psn();
  if (ib::psn_after(end, sent_end_)) sent_end_ = end;
  if (qp_.is_reliable()) {
    asked_end_ = end;
    if (deadline_ == kNever) restart_timer();
    return;
  }
  // IBA 9.8.2, 9.8.3: done when it is on the wire. Nothing can be before it in the window.
  una_ = end;
  qp_.complete_send(wqe, static_cast<std::uint32_t>(wqe.length));
  pop_front();
  settle();
}

/// The WQE completes in error when everything before it has completed.
void Requester::fail_wqe(SendWqe& wqe, Failure failure) {
  wqe.failed = true;
  wqe.syndrome = failure.syndrome;
  wqe.vendor = failure.vendor;
}

/// Makes the payload a view of bytes of the message that lie in one piece. False: they do not.
bool Requester::view(const SendWqe& wqe, std::uint64_t offset, std::uint64_t size,
                     ib::Payload& payload) const {
  if (size == 0) return true;
  std::uint64_t start = 0;
  for (const GatherSegment& segment : wqe.segments) {
    const std::uint64_t end = start + segment.data.length;
    if (offset < end) {
      if (size > end - offset) return false;
      if (segment.is_inline) {
        // Nothing to lend, if it comes to that: the slot is used again.
        if (size > kCopiedAtMost) return false;
        payload.view(wqe.inline_bytes.data() + segment.inline_offset + (offset - start), size);
        return true;
      }
      return qp_.core().view_payload({.context = qp_.memory_context(),
                                      .key = segment.data.lkey,
                                      .access = MemoryAccess::local_read,
                                      .va = segment.data.address + (offset - start),
                                      .length = size},
                                     payload);
    }
    start = end;
  }
  return false;
}

MemoryStatus Requester::gather(SendWqe& wqe, std::uint64_t offset, std::byte* to,
                               std::uint64_t length, std::uint64_t ahead) {
  const std::uint64_t turn_end = offset + std::max(length, ahead);
  std::uint64_t start = 0;  // Of the segment, in the message.
  for (const GatherSegment& segment : wqe.segments) {
    if (length == 0) return MemoryStatus::ok;
    const std::uint64_t end = start + segment.data.length;
    if (offset < end) {
      const std::uint64_t skip = offset - start;
      const std::uint64_t piece = std::min(length, end - offset);
      if (segment.is_inline) {
        std::memcpy(to, wqe.inline_bytes.data() + segment.inline_offset + skip, piece);
      } else {
        const MemoryStatus status = qp_.core().read_payload(
            qp_,
            {qp_.memory_context(), segment.data.lkey, MemoryAccess::local_read,
             segment.data.address + skip, piece, std::max(piece, std::min(end, turn_end) - offset),
             send_at_, offset},
            to);
        if (status != MemoryStatus::ok) return status;
      }
      to += piece;
      offset += piece;
      length -= piece;
    }
    start = end;
  }
  return MemoryStatus::ok;
}

}  // namespace softhca
