// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <algorithm>
#include <cstring>

#include "hw-model/ib/opcodes.h"
#include "hw-model/ib/psn.h"
#include "hw-model/ib/train.h"
#include "hw-model/transport/queue_pair.h"
#include "hw-model/transport/requester.h"

// Responses, retries and timeouts of the requester (IBA 9.7.5.1, 9.7.5.2, 9.7.6).
namespace softhca {

Handled Requester::handle_response(ib::Packet& packet) {
  const bool active = qp_.state == prm::QpState::rts || qp_.state == prm::QpState::sq_drained;
  const std::uint32_t psn = packet.bth.psn;
  // Ghosts: of requests never sent, or answered already (IBA 9.7.5.1.2).
  if (!active || !ib::psn_before(psn, sent_end_) || ib::psn_before(psn, una_)) {
    if (packet.count > 1) return Handled::one_by_one;
    ++qp_.counters.packets_dropped;
    return Handled::done;
  }
  if (ib::is_rdma_read_response(packet.bth.opcode)) return handle_read_response(packet);
  if (ib::has_atomic_ack_eth(packet.bth.opcode)) return handle_atomic_response(packet);
  switch (ib::aeth_kind(packet.aeth.syndrome)) {
    case ib::AethKind::ack:
      handle_ack(psn);
      break;
    case ib::AethKind::rnr_nak:
      handle_rnr_nak(psn, ib::aeth_value(packet.aeth.syndrome));
      break;
    case ib::AethKind::nak:
      handle_nak(psn, ib::aeth_value(packet.aeth.syndrome));
      break;
    case ib::AethKind::reserved:
      ++qp_.counters.packets_dropped;
      break;
  }
  return Handled::done;
}

void Requester::pop_front() {
  qp_.sq.release(window_.front().end);
  ++qp_.counters.messages_sent;
  window_.pop();
  if (send_at_ < window_.begin()) {
    send_at_ = window_.begin();
    send_packet_ = 0;
  }
}

/// Every request with a PSN before `psn_end` has arrived. Completes what can be; true if a READ or
/// atomic among them was not answered, so its response is lost.
bool Requester::acknowledge(std::uint32_t psn_end) {
  bool lost = false;
  bool moved = false;
  while (!window_.empty()) {
    SendWqe& wqe = window_.front();
    if (wqe.failed || !ib::psn_before(wqe.first_psn, psn_end)) break;
    if (wqe.needs_response()) {
      // Not lost when the answer so far reaches `psn_end`: a NAK may come inside a READ.
      lost = !ib::psn_after(una_, wqe.first_psn) || ib::psn_after(psn_end, una_);
      break;
    }
    const std::uint32_t end = wqe.end_psn();
    if (wqe.psn_count == 0 ? !wqe.sent : ib::psn_before(psn_end, end)) break;
    una_ = end;
    moved = true;
    qp_.complete_send(wqe, static_cast<std::uint32_t>(wqe.length));
    pop_front();
  }
  if (!window_.empty() && !lost && !window_.front().failed) {
    // Part of a message.
    if (ib::psn_after(psn_end, una_)) {
      una_ = psn_end;
      moved = true;
    }
    const SendWqe& wqe = window_.front();
    if (send_at_ == window_.begin() && !wqe.needs_response() && wqe.psn_count != 0) {
      const std::int32_t done = ib::psn_diff(una_, wqe.first_psn);
      if (done > 0) send_packet_ = std::max(send_packet_, static_cast<std::uint32_t>(done));
    }
  } else if (window_.empty() && ib::psn_after(psn_end, una_)) {
    una_ = psn_end;
  }
  if (moved) progress();
  return lost;
}

/// After anything that moves the front of the window: completes local operations and failed WQEs
/// there.
void Requester::settle() {
  while (!window_.empty()) {
    SendWqe& wqe = window_.front();
    if (wqe.failed) {
      qp_.fail_send(wqe, {wqe.syndrome, wqe.vendor});
      return;
    }
    if (wqe.psn_count != 0 || !wqe.sent) break;
    qp_.complete_send(wqe, 0);
    pop_front();
  }
  if (qp_.state == prm::QpState::sq_drained && window_.empty() && !drain_reported_) {
    drain_reported_ = true;
    qp_.core().events.qp_event(EventType::sq_drained, qp_.number());
  }
  restart_timer();
  if (send_at_ != window_.end() || qp_.sq.has_work()) qp_.core().schedule(qp_);
}

void Requester::begin_drain() {
  drain_reported_ = false;
  settle();
}

void Requester::progress() {
  went_back_ = false;
  rnr_wait_ = false;
  start();
  deadline_ = kNever;  // settle() starts it again if something is outstanding.
}

/// Starts the timer if it does not run and an answer was asked for and not had (IBA 9.7.6.1.3). A
/// QP that waits for its turn, or has asked for nothing yet, cannot be overdue.
void Requester::restart_timer() {
  if (rnr_wait_) return;
  const bool outstanding = !window_.empty() && ib::psn_after(asked_end_, una_);
  const std::uint8_t timeout = qp_.attributes.ack_timeout;
  if (!outstanding || timeout == 0 || !qp_.is_reliable()) {
    deadline_ = kNever;
  } else if (deadline_ == kNever) {
    // The timeout may come between T_tr and 4 T_tr; a busy host gets twice T_tr.
    deadline_ = qp_.core().clock.now() + (Nanoseconds{8192} << std::min<std::uint8_t>(timeout, 31));
  }
  qp_.update_timer();
}

void Requester::handle_ack(std::uint32_t psn) {
  const bool lost = acknowledge(ib::psn_add(psn, 1));
  if (lost) {
    implied_nak();
    if (qp_.state == prm::QpState::error) return;
  }
  settle();
}

Handled Requester::handle_read_response(ib::Packet& packet) {
  const std::uint32_t psn = packet.bth.psn;
  // A response acknowledges what came before its request (IBA 9.7.5.1.2).
  while (!window_.empty() && !window_.front().needs_response() && !window_.front().failed &&
         window_.front().psn_count != 0 && !ib::psn_before(psn, window_.front().end_psn())) {
    acknowledge(window_.front().end_psn());
    settle();
    if (qp_.state == prm::QpState::error) return Handled::done;
  }
  if (window_.empty()) return Handled::done;
  SendWqe& wqe = window_.front();
  const std::uint32_t expected = ib::psn_before(una_, wqe.first_psn) ? wqe.first_psn : una_;
  if (!wqe.is_read() || psn != expected) {
    // Something before it was lost.
    if (wqe.needs_response() && ib::psn_after(psn, expected)) {
      implied_nak();
    } else if (packet.count > 1) {
      return Handled::one_by_one;
    } else {
      ++qp_.counters.packets_dropped;
    }
    return Handled::done;
  }
  const std::uint64_t offset =
      std::uint64_t{static_cast<std::uint32_t>(ib::psn_diff(psn, wqe.first_psn))} * qp_.mtu();
  const std::uint64_t size =
      std::min<std::uint64_t>(std::uint64_t{packet.count} * qp_.mtu(), wqe.length - offset);
  const bool last = ib::psn_add(psn, packet.count) == wqe.end_psn();
  if (packet.payload.size() != size || ib::ends_message(ib::last_opcode(packet)) != last ||
      (packet.count > 1 && packet.segment != qp_.mtu())) {
    if (packet.count > 1) return Handled::one_by_one;
    qp_.fail_send(wqe, kBadResponse);
    return Handled::done;
  }
  const bool to_cqe = wqe.signalled() && wqe.length != 0 && wqe.length <= qp_.params.cs_req;
  if (to_cqe) {
    std::copy(packet.payload.begin(), packet.payload.end(), wqe.result.begin());
  } else {
    const MemoryStatus status = scatter(wqe, offset, packet.payload.data(), size);
    if (status == MemoryStatus::pending) return Handled::pending;
    if (status != MemoryStatus::ok) {
      if (packet.count > 1) return Handled::one_by_one;
      qp_.fail_send(wqe, kLocalProtection);
      return Handled::done;
    }
  }
  una_ = ib::psn_add(psn, packet.count);
  qp_.counters.bytes_received += size;
  progress();
  if (last) {
    if (wqe.sent) --outstanding_reads_;
    const std::span<const std::byte> data(wqe.result.data(), to_cqe ? wqe.length : 0);
    qp_.complete_send(wqe, static_cast<std::uint32_t>(wqe.length), data);
    pop_front();
  }
  settle();
  return Handled::done;
}

Handled Requester::handle_atomic_response(ib::Packet& packet) {
  const std::uint32_t psn = packet.bth.psn;
  while (!window_.empty() && !window_.front().needs_response() && !window_.front().failed &&
         window_.front().psn_count != 0 && !ib::psn_before(psn, window_.front().end_psn())) {
    acknowledge(window_.front().end_psn());
    settle();
    if (qp_.state == prm::QpState::error) return Handled::done;
  }
  if (window_.empty()) return Handled::done;
  SendWqe& wqe = window_.front();
  if (!wqe.is_atomic() || psn != wqe.first_psn) {
    if (wqe.needs_response() && ib::psn_after(psn, wqe.first_psn)) {
      implied_nak();
    } else {
      ++qp_.counters.packets_dropped;
    }
    return Handled::done;
  }
  const std::uint64_t word = qp_.core().config.host_endian_atomics
                                 ? packet.atomic_ack
                                 : __builtin_bswap64(packet.atomic_ack);
  const bool to_cqe = wqe.signalled() && qp_.params.cs_req >= 8;
  std::memcpy(wqe.result.data(), &word, sizeof word);
  if (!to_cqe) {
    const MemoryStatus status = scatter(wqe, 0, wqe.result.data(), sizeof word);
    if (status == MemoryStatus::pending) return Handled::pending;
    if (status != MemoryStatus::ok) {
      qp_.fail_send(wqe, kLocalProtection);
      return Handled::done;
    }
  }
  una_ = wqe.end_psn();
  progress();
  if (wqe.sent) --outstanding_reads_;
  qp_.complete_send(wqe, sizeof word, {wqe.result.data(), to_cqe ? sizeof word : 0});
  pop_front();
  settle();
  return Handled::done;
}

void Requester::handle_nak(std::uint32_t psn, std::uint8_t code) {
  // Acknowledges everything before it (IBA 9.7.5.1.1).
  const bool lost = acknowledge(psn);
  settle();
  if (qp_.state == prm::QpState::error || window_.empty()) return;
  if (lost) {
    implied_nak();
    return;
  }
  switch (static_cast<ib::NakCode>(code)) {
    case ib::NakCode::psn_sequence_error:
      // While an RNR NAK is waited out everything will be sent again anyway.
      if (went_back_ || rnr_wait_) return;
      ++qp_.counters.sequence_naks_received;
      went_back_ = true;
      retry_or_fail(&QCounters::packet_seq_err);
      return;
    case ib::NakCode::invalid_request:
      qp_.fail_send(window_.front(), kRemoteInvalidRequest);
      return;
    case ib::NakCode::remote_access_error:
      qp_.fail_send(window_.front(), kRemoteAccess);
      return;
    case ib::NakCode::remote_operational_error:
      qp_.fail_send(window_.front(), kRemoteOperation);
      return;
    default:
      ++qp_.counters.packets_dropped;
      return;
  }
}

void Requester::handle_rnr_nak(std::uint32_t psn, std::uint8_t timer) {
  const bool lost = acknowledge(psn);
  settle();
  if (qp_.state == prm::QpState::error || window_.empty()) return;
  if (lost) {
    implied_nak();
    return;
  }
  if (rnr_wait_) return;
  ++qp_.counters.rnr_naks_received;
  if (qp_.attributes.rnr_retry != 7) {  // IBA 9.7.5.2.8: 7 is for ever.
    if (rnr_retries_left_ == 0) {
      qp_.fail_send(window_.front(), kRnrRetryExceeded);
      return;
    }
    --rnr_retries_left_;
  }
  ++qp_.q_counters().rnr_nak_retry_err;
  go_back();
  rnr_wait_ = true;
  deadline_ = qp_.core().clock.now() + ib::rnr_timer_ns(timer);
  qp_.update_timer();
}

/// A response showed that an earlier one was lost (IBA 9.7.5.2.5 "implied NAK").
void Requester::implied_nak() {
  if (went_back_ || rnr_wait_) return;
  ++qp_.counters.implied_naks;
  went_back_ = true;
  retry_or_fail(&QCounters::implied_nak_seq_err);
}

void Requester::timer_expired() {
  if (deadline_ == kNever || qp_.core().clock.now() < deadline_) return;
  deadline_ = kNever;
  if (rnr_wait_) {
    rnr_wait_ = false;
    went_back_ = false;
    restart_timer();
    qp_.core().schedule(qp_);
    return;
  }
  if (window_.empty()) return;
  ++qp_.counters.timeouts;
  went_back_ = false;
  retry_or_fail(&QCounters::local_ack_timeout_err);
}

/// IBA 9.7.6.1.3: each retry for a timeout or a lost packet costs one of retry_count, progress
/// restores them.
void Requester::retry_or_fail(std::uint32_t QCounters::*recoverable) {
  if (retries_left_ == 0) {
    qp_.fail_send(window_.front(), kTransportRetryExceeded);
    return;
  }
  --retries_left_;
  ++(qp_.q_counters().*recoverable);
  go_back();
  deadline_ = kNever;
  restart_timer();
  qp_.core().schedule(qp_);
}

/// Go-back-N: everything from the oldest PSN not acknowledged is sent again.
void Requester::go_back() {
  ++qp_.counters.retransmissions;
  asked_end_ = una_;
  for (std::uint64_t number = window_.begin(); number != window_.end() && number <= send_at_;
       ++number) {
    SendWqe& wqe = window_.at(number);
    if (wqe.psn_count != 0) wqe.sent = false;
  }
  outstanding_reads_ = 0;
  send_at_ = window_.begin();
  send_packet_ = 0;
  if (window_.empty()) return;
  const SendWqe& wqe = window_.front();
  const std::int32_t done = ib::psn_diff(una_, wqe.first_psn);
  if (done > 0 && static_cast<std::uint32_t>(done) < wqe.psn_count) {
    send_packet_ = static_cast<std::uint32_t>(done);
  }
}

MemoryStatus Requester::scatter(SendWqe& wqe, std::uint64_t offset, const std::byte* from,
                                std::uint64_t length) {
  std::uint64_t start = 0;
  for (const GatherSegment& segment : wqe.segments) {
    if (length == 0) return MemoryStatus::ok;
    const std::uint64_t end = start + segment.data.length;
    if (offset < end && !segment.is_inline) {
      const std::uint64_t skip = offset - start;
      const std::uint64_t piece = std::min(length, end - offset);
      const MemoryStatus status = qp_.core().mkeys.write_ordered(
          segment.data.lkey, qp_.memory_context(), segment.data.address + skip, from, piece,
          MemoryAccess::local_write);
      if (status != MemoryStatus::ok) return status;
      from += piece;
      offset += piece;
      length -= piece;
    }
    start = end;
  }
  return length == 0 ? MemoryStatus::ok : MemoryStatus::out_of_bounds;
}

}  // namespace softhca
