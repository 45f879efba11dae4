// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <utility>

#include "hw-model/ib/opcodes.h"
#include "hw-model/ib/psn.h"
#include "hw-model/transport/queue_pair.h"

// State transitions and inspection of a QP (IBA 10.3.1, 11.2.5; PRM "QP state transitions").
namespace softhca {

using prm::QpState;

namespace {

bool transition_allowed(QpTransition transition, QpState state) {
  switch (transition) {
    case QpTransition::reset_to_init:
      return state == QpState::reset;
    case QpTransition::init_to_init:
    case QpTransition::init_to_rtr:
      return state == QpState::init;
    case QpTransition::rtr_to_rts:
      return state == QpState::rtr;
    case QpTransition::rts_to_rts:
    case QpTransition::rts_to_sq_drained:
      return state == QpState::rts;
    case QpTransition::sq_error_to_rts:
      return state == QpState::sq_error;
    case QpTransition::sq_drained_to_rts:
      return state == QpState::sq_drained;
    case QpTransition::to_error:
    case QpTransition::to_reset:
      return true;
  }
  return false;
}

}  // namespace

ModifyResult QueuePair::modify(QpTransition transition, const QpAttributes& from,
                               std::uint32_t opt_mask) {
  if (!transition_allowed(transition, state)) return ModifyResult::bad_state;
  core_.port.ways_changed();
  // Every work request before the failure's end gets its CQE first (IBA 10.3.1.7).
  if (transition == QpTransition::sq_error_to_rts && !requester.window().empty()) {
    return ModifyResult::bad_state;
  }
  if (transition == QpTransition::to_reset) {
    responder.acknowledge();
    to_reset();
    return ModifyResult::ok;
  }
  if (transition == QpTransition::to_error) {
    // What else is owed to the peer is not sent any more: the consumer asked for the end.
    responder.acknowledge();
    responder.stop();
    enter_error();
    return ModifyResult::ok;
  }
  const bool takes_pkey =
      transition == QpTransition::reset_to_init || (opt_mask & prm::kOptParamPkeyIndex) != 0;
  if (takes_pkey && from.pkey_index >= core_.port.attributes().pkeys.size()) {
    return ModifyResult::bad_parameter;
  }
  const bool sends_packets = !is_datagram() && !only_registers();
  if (transition == QpTransition::init_to_rtr && sends_packets && ib::mtu_bytes(from.mtu) == 0) {
    return ModifyResult::bad_parameter;
  }
  apply_required(transition, from);
  apply_optional(from, opt_mask);
  prepare_headers();
  return ModifyResult::ok;
}

void QueuePair::apply_required(QpTransition transition, const QpAttributes& from) {
  switch (transition) {
    case QpTransition::reset_to_init:
      attributes = {};
      attributes.pkey_index = from.pkey_index;
      attributes.port = from.port;
      attributes.remote_read = from.remote_read;
      attributes.remote_write = from.remote_write;
      attributes.remote_atomic = from.remote_atomic;
      attributes.qkey = from.qkey;
      attributes.pm_state = from.pm_state;
      use_counter_set(from.counter_set_id);
      state = QpState::init;
      return;
    case QpTransition::init_to_rtr:
      attributes.path = from.path;
      attributes.mtu = from.mtu;
      attributes.remote_qpn = from.remote_qpn & ib::kPsnMask;
      attributes.next_rcv_psn = from.next_rcv_psn & ib::kPsnMask;
      attributes.log_rra_max = from.log_rra_max & 7;
      attributes.min_rnr_nak = from.min_rnr_nak & 0x1f;
      responder.reset(attributes.next_rcv_psn);
      established_ = false;
      state = QpState::rtr;
      return;
    case QpTransition::rtr_to_rts:
      attributes.next_send_psn = from.next_send_psn & ib::kPsnMask;
      attributes.log_sra_max = from.log_sra_max & 7;
      attributes.retry_count = from.retry_count & 7;
      attributes.rnr_retry = from.rnr_retry & 7;
      attributes.ack_timeout = from.ack_timeout & 0x1f;
      requester.reset(attributes.next_send_psn);
      requester.start();
      state = QpState::rts;
      doorbell();
      return;
    case QpTransition::sq_error_to_rts:
      requester.reset(requester.next_psn());
      requester.start();
      state = QpState::rts;
      doorbell();
      return;
    case QpTransition::sq_drained_to_rts:
      state = QpState::rts;
      doorbell();
      core_.schedule(*this);
      return;
    case QpTransition::rts_to_sq_drained:
      state = QpState::sq_drained;
      requester.begin_drain();
      return;
    default:
      return;
  }
}

void QueuePair::apply_optional(const QpAttributes& from, std::uint32_t opt_mask) {
  const auto has = [opt_mask](std::uint32_t bit) { return (opt_mask & bit) != 0; };
  if (has(prm::kOptParamRre)) attributes.remote_read = from.remote_read;
  if (has(prm::kOptParamRwe)) attributes.remote_write = from.remote_write;
  if (has(prm::kOptParamRae)) attributes.remote_atomic = from.remote_atomic;
  if (has(prm::kOptParamPkeyIndex)) attributes.pkey_index = from.pkey_index;
  if (has(prm::kOptParamQkey)) attributes.qkey = from.qkey;
  if (has(prm::kOptParamRnrTimeout)) attributes.min_rnr_nak = from.min_rnr_nak & 0x1f;
  if (has(prm::kOptParamPrimaryPath)) attributes.path = from.path;
  if (has(prm::kOptParamSraMax)) attributes.log_sra_max = from.log_sra_max & 7;
  if (has(prm::kOptParamRraMax)) attributes.log_rra_max = from.log_rra_max & 7;
  if (has(prm::kOptParamPmState)) attributes.pm_state = from.pm_state;
  if (has(prm::kOptParamRetryCount)) attributes.retry_count = from.retry_count & 7;
  if (has(prm::kOptParamRnrRetry)) attributes.rnr_retry = from.rnr_retry & 7;
  if (has(prm::kOptParamAckTimeout)) attributes.ack_timeout = from.ack_timeout & 0x1f;
  if (has(prm::kOptParamCounterSetId)) use_counter_set(from.counter_set_id);
}

void QueuePair::use_counter_set(std::uint8_t set) {
  attributes.counter_set_id = set;
  QCounterSet* found = core_.q_counters.find(set);
  q_counters_ = found == nullptr ? &core_.uncounted : &found->counters;
}

void QueuePair::to_reset() {
  state = QpState::reset;
  core_.lender.recall();
  attributes = {};
  prepare_headers();
  use_counter_set(0);
  counters = {};
  requester.reset(0);
  responder.reset(0);
  sq.reset();
  rq.reset();
  inbox_.clear();
  inbox_waiting_ = false;
  established_ = false;
  last_wqe_reported_ = false;
  rq_poll_ = kNever;
  update_timer();
}

QpSnapshot QueuePair::snapshot() const {
  QpSnapshot shot;
  shot.qpn = number_;
  shot.type = params.type;
  shot.state = state;
  shot.attributes = attributes;
  if (state >= QpState::rtr) shot.attributes.next_rcv_psn = responder.expected_psn();
  if (state >= QpState::rts) shot.attributes.next_send_psn = requester.next_psn();
  shot.counters = counters;
  shot.send_cqn = params.send_cq ? params.send_cq->number() : 0;
  shot.recv_cqn = params.recv_cq ? params.recv_cq->number() : 0;
  shot.srqn = params.srq ? params.srq->number() : 0;
  shot.sq_posted = sq.posted();
  shot.sq_consumed = sq.consumed();
  shot.rq_posted = rq.posted();
  shot.rq_consumed = rq.consumed();
  shot.last_acked_psn = ib::psn_add(requester.unacked_psn(), ib::kPsnMask);
  shot.outstanding_wqes = requester.window().size();
  Stall found = stall();
  shot.stall_cause = found.cause;
  shot.stall = std::move(found.reason);
  return shot;
}

QueuePair::Stall QueuePair::stall() const {
  using enum StallCause;
  if (params.send_cq && params.send_cq->in_error())
    return {itself, "its send CQ is in error (overrun)"};
  if (params.recv_cq && params.recv_cq->in_error())
    return {itself, "its receive CQ is in error (overrun)"};
  if (inbox_waiting_) return {itself, "a received packet waits for host memory"};
  if (requester.waiting()) return {itself, "a send WQE waits for host memory"};
  if (responder.waiting()) return {itself, "an RDMA READ response waits for host memory"};
  if (state == QpState::error) return {itself, "in error state"};
  if (state == QpState::sq_error) return {itself, "send queue in error state"};
  if (state == QpState::sq_drained) return {itself, "send queue drained on request"};
  if (state != QpState::rts || requester.idle()) return {};
  if (core_.port.attributes().state != ib::PortState::active)
    return {port, "the port is not active"};
  if (requester.waiting_for_rnr()) return {peer, "the peer has no receive posted (RNR NAK)"};
  if (!core_.port.ready()) return {itself, "the link is full"};
  const SendWindow& window = requester.window();
  if (window.empty()) return {};
  if (requester.retries_left() < attributes.retry_count) {
    return {peer, "no acknowledge from the peer, retrying"};
  }
  if (requester.outstanding_reads() >= 1U << attributes.log_sra_max) {
    return {peer, "max_rd_atomic READs and atomics are outstanding"};
  }
  return {peer, "waiting for acknowledges of the peer"};
}

}  // namespace softhca
