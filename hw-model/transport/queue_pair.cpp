// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/transport/queue_pair.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "hw-model/ib/opcodes.h"
#include "hw-model/ib/train.h"

namespace softhca {

using prm::QpState;

namespace {

ib::Service service_of(prm::QpServiceType type) {
  switch (type) {
    case prm::QpServiceType::ud:
    case prm::QpServiceType::qp0:
    case prm::QpServiceType::qp1:
      return ib::Service::ud;
    case prm::QpServiceType::xrc:
      return ib::Service::xrc;
    case prm::QpServiceType::rc:
      return ib::Service::rc;
    default:
      return ib::Service::uc;
  }
}

}  // namespace

QueuePair::QueuePair(std::uint32_t number, Core& core, QpParams qp_params)
    : params(std::move(qp_params)),
      requester(*this),
      responder(*this),
      number_(number),
      service_(service_of(params.type)),
      core_(core),
      q_counters_(&core.uncounted) {
  if (params.has_sq) sq = SendQueue(core.dma, params.sq);
  if (params.has_rq) rq = ReceiveQueue(core.dma, params.rq);
}

SharedReceiveQueue* QueuePair::xrc_srq(std::uint32_t srqn) const {
  SharedReceiveQueue* found = core_.srqs.find(srqn);
  const bool ours = found != nullptr && params.xrcd != 0 && found->params().xrcd == params.xrcd;
  return ours ? found : nullptr;
}

SharedReceiveQueue* QueuePair::receive_srq() const {
  return is_xrc() ? xrc_srq(responder.srqn()) : params.srq.get();
}

MemoryContext QueuePair::receive_context() const {
  const SharedReceiveQueue* found = receive_srq();
  if (found == nullptr) return memory_context();
  const SrqParams& srq = found->params();
  return {.pd = srq.pd, .qpn = number_, .reserved_lkey = srq.reserved_lkey};
}

MemoryContext QueuePair::remote_context(const ib::Packet& packet) const {
  const SharedReceiveQueue* named = is_xrc() ? xrc_srq(packet.xrc_srqn) : nullptr;
  return {.pd = named == nullptr ? params.pd : named->params().pd, .qpn = number_};
}

std::uint32_t QueuePair::source_qpn() const {
  if (params.type == prm::QpServiceType::qp0) return ib::kQp0;
  if (params.type == prm::QpServiceType::qp1) return ib::kQp1;
  return params.deth_sqpn != 0 ? params.deth_sqpn : number_;
}

void QueuePair::doorbell() {
  switch (state) {
    case QpState::rts:
    case QpState::sq_drained:
      break;
    case QpState::error:
    case QpState::sq_error:
      core_.schedule(*this);
      return;
    default:
      return;  // The record is read when the QP gets to RTS.
  }
  switch (sq.update()) {
    case TakeStatus::ok:
      if (!core_.has_turn_at_once() || !requester.run_at_once(core_.lent)) core_.schedule(*this);
      break;
    case TakeStatus::empty:
      break;
    case TakeStatus::pending:
      core_.park(*this);
      break;
    case TakeStatus::error:
      fail(EventType::wq_catastrophic);
      break;
  }
}

ib::PacketPtr QueuePair::keep(ib::Packet& packet) {
  auto kept = core_.pool.acquire(packet, 0);
  kept->payload = std::move(packet.payload);
  return kept;
}

void QueuePair::receive(ib::Packet& packet) {
  counters.packets_received += packet.count;
  if (!inbox_.empty()) {
    if (inbox_.size() < kMaxInbox) {
      inbox_.push_back(keep(packet));
    } else {
      counters.packets_dropped += packet.count;
    }
    return;
  }
  switch (handle(packet)) {
    case Handled::done:
      break;
    case Handled::pending:
      inbox_.push_back(keep(packet));
      inbox_waiting_ = true;
      core_.park(*this);
      break;
    case Handled::one_by_one:
      take_apart(keep(packet));
      core_.schedule(*this);
      break;
  }
}

/// Puts the packets of a train in front of those that wait.
void QueuePair::take_apart(ib::PacketPtr train) {
  std::vector<ib::PacketPtr> packets;
  packets.reserve(train->count);
  while (train->count > 1) packets.push_back(ib::take_first(*train, core_.pool));
  packets.push_back(std::move(train));
  for (auto packet = packets.rbegin(); packet != packets.rend(); ++packet) {
    inbox_.push_front(std::move(*packet));
  }
}

Handled QueuePair::handle(ib::Packet& packet) {
  const std::uint8_t opcode = packet.bth.opcode;
  const bool listening = state == QpState::rtr || state == QpState::rts ||
                         state == QpState::sq_drained || state == QpState::sq_error;
  if (!listening || only_registers() || !ib::is_known(opcode) ||
      ib::service_of(opcode) != service()) {
    counters.packets_dropped += packet.count;
    return Handled::done;
  }
  if (packet.count > 1 && !is_reliable()) return Handled::one_by_one;
  if (ib::is_response(opcode)) return requester.handle_response(packet);
  if (state == QpState::rtr && !established_ && !is_datagram()) {
    established_ = true;
    core_.events.qp_event(EventType::communication_established, number_);
  }
  return is_datagram() ? responder.handle_datagram(packet) : responder.handle_request(packet);
}

/// True if packets are left that could be handled at once.
bool QueuePair::drain_inbox(Quantum& quantum) {
  while (!quantum.spent() && !inbox_.empty()) {
    quantum.charge_packets(inbox_.front()->count, inbox_.front()->payload.size());
    const Handled handled = handle(*inbox_.front());
    if (handled == Handled::pending) {
      inbox_waiting_ = true;
      core_.park(*this);
      return false;
    }
    ib::PacketPtr packet = inbox_.pop_front();
    if (handled == Handled::one_by_one) {
      take_apart(std::move(packet));
    } else {
      core_.pool.release(std::move(packet));
    }
  }
  return !inbox_.empty();
}

bool QueuePair::run(Quantum& quantum) {
  bool more = false;
  if (!inbox_.empty() && !inbox_waiting_) more = drain_inbox(quantum);
  more = responder.run(quantum) || more;
  if (state == QpState::error || state == QpState::sq_error) return flush(quantum) || more;
  more = requester.run(quantum) || more;
  // The requester itself may have failed.
  if (state == QpState::error || state == QpState::sq_error) return true;
  return more;
}

void QueuePair::timer_expired() {
  if (rq_poll_ <= core_.clock.now()) {
    rq_poll_ = kNever;
    core_.schedule(*this);
  }
  requester.timer_expired();
  update_timer();
}

void QueuePair::update_timer() {
  core_.set_timer(*this, std::min(requester.deadline(), rq_poll_));
}

void QueuePair::memory_arrived() {
  inbox_waiting_ = false;
  requester.memory_arrived();
  responder.memory_arrived();
  doorbell();
  core_.schedule(*this);
}

TakeStatus QueuePair::take_receive_wqe(ReceiveWqe& wqe) {
  if (SharedReceiveQueue* srq = receive_srq()) return srq->take(wqe);
  return rq.take(params.buffer, wqe);
}

/// After a change of the attributes.
void QueuePair::prepare_headers() {
  const QpPath& path = attributes.path;
  headers_ = {};
  path_mtu_ = full_packet(attributes.mtu);
  headers_.bth.dest_qp = attributes.remote_qpn;
  headers_.bth.migrated = attributes.pm_state == 3;
  headers_.path.dlid = path.dlid;
  headers_.path.sl = path.sl;
  headers_.path.has_grh = path.has_grh;
  if (!path.has_grh) return;
  headers_.path.grh = {.dgid = path.dgid,
                       .traffic_class = path.traffic_class,
                       .flow_label = path.flow_label,
                       .hop_limit = path.hop_limit};
}

ib::Packet& QueuePair::make_packet(std::uint8_t opcode, std::uint32_t psn) {
  ib::Packet& packet = core_.outgoing;
  static_cast<ib::PacketHeaders&>(packet) = headers_;
  packet.payload.clear();
  const ib::PortAttributes& port = core_.port_attributes;
  packet.bth.opcode = opcode;
  packet.bth.psn = psn;
  packet.bth.pkey = core_.pkey(attributes.pkey_index);
  packet.path.slid = ib::source_lid(port, attributes.path.path_bits);
  if (packet.path.has_grh && attributes.path.sgid_index < port.gids.size()) {
    packet.path.grh.sgid = port.gids[attributes.path.sgid_index];
  }
  return packet;
}

void QueuePair::send_packet(ib::Packet& packet) {
  counters.packets_sent += packet.count;
  counters.bytes_sent += packet.payload.size();
  if (core_.port.cut_through(packet)) return;
  ib::Payload& payload = packet.payload;
  if (is_reliable() && payload.is_view() && payload.size() > kCopiedAtMost) {
    payload.refer(core_.lender, payload.data(), payload.size());
  }
  core_.port.send(keep(packet));
}

// ---- completions

void QueuePair::complete_send(std::uint16_t index, prm::WqeOpcode opcode, std::uint32_t byte_count,
                              std::span<const std::byte> scatter) {
  if (!params.send_cq) return;
  prm::CqeWords cqe{};
  cqe.op_own = static_cast<std::uint8_t>(static_cast<unsigned>(prm::CqeOpcode::requester) << 4);
  cqe.srqn_user_index = params.user_index;
  cqe.byte_count = byte_count;
  cqe.sop_qpn = static_cast<std::uint32_t>(opcode) << 24 | number_;
  cqe.wqe_counter = index;
  ++counters.completions;
  post(*params.send_cq, cqe, /*solicited=*/false, scatter);
}

void QueuePair::count_send_error(prm::CqeSyndrome syndrome) {
  ++q_counters_->req_cqe_error;
  switch (syndrome) {
    case prm::CqeSyndrome::flushed:
      ++q_counters_->req_cqe_flush_error;
      break;
    case prm::CqeSyndrome::local_length:
      ++q_counters_->req_local_length_error;
      break;
    case prm::CqeSyndrome::local_qp_operation:
      ++q_counters_->local_operation_error;
      break;
    case prm::CqeSyndrome::local_protection:
      ++q_counters_->req_local_protection;
      break;
    case prm::CqeSyndrome::memory_window_bind:
      ++q_counters_->req_mw_binding;
      break;
    case prm::CqeSyndrome::bad_response:
      ++q_counters_->req_bad_response;
      break;
    case prm::CqeSyndrome::remote_invalid_request:
      ++q_counters_->req_remote_invalid_request;
      break;
    case prm::CqeSyndrome::remote_access:
      ++q_counters_->req_remote_access_errors;
      break;
    case prm::CqeSyndrome::remote_operation:
      ++q_counters_->req_remote_operation_errors;
      break;
    case prm::CqeSyndrome::transport_retry_exceeded:
      ++q_counters_->req_transport_retries_exceeded;
      break;
    default:
      break;
  }
}

void QueuePair::count_receive_error(prm::CqeSyndrome syndrome) {
  ++q_counters_->resp_cqe_error;
  switch (syndrome) {
    case prm::CqeSyndrome::flushed:
      ++q_counters_->resp_cqe_flush_error;
      break;
    case prm::CqeSyndrome::local_length:
      ++q_counters_->resp_local_length_error;
      break;
    case prm::CqeSyndrome::local_protection:
      ++q_counters_->resp_local_protection;
      break;
    case prm::CqeSyndrome::remote_invalid_request:
      ++q_counters_->resp_remote_invalid_request;
      break;
    default:
      break;
  }
}

void QueuePair::complete_send_error(std::uint16_t index, prm::WqeOpcode opcode, Failure failure) {
  if (!params.send_cq) return;
  count_send_error(failure.syndrome);
  prm::CqeWords cqe{};
  cqe.op_own =
      static_cast<std::uint8_t>(static_cast<unsigned>(prm::CqeOpcode::requester_error) << 4);
  cqe.srqn_user_index = params.user_index;
  cqe.timestamp = std::uint64_t{failure.vendor} << 8 | static_cast<std::uint8_t>(failure.syndrome);
  cqe.sop_qpn = static_cast<std::uint32_t>(opcode) << 24 | number_;
  cqe.wqe_counter = index;
  ++counters.error_completions;
  post(*params.send_cq, cqe, /*solicited=*/false);
}

QueuePair::ReceiveTarget QueuePair::receive_target() const {
  if (!is_xrc()) return {params.recv_cq.get(), params.user_index};
  const SharedReceiveQueue* srq = receive_srq();
  if (srq == nullptr) return {nullptr, 0};
  return {srq->params().cq.get(), srq->params().user_index};
}

void QueuePair::complete_receive_error(std::uint16_t index, Failure failure) {
  const ReceiveTarget target = receive_target();
  if (target.cq == nullptr) return;
  count_receive_error(failure.syndrome);
  prm::CqeWords cqe{};
  cqe.op_own =
      static_cast<std::uint8_t>(static_cast<unsigned>(prm::CqeOpcode::responder_error) << 4);
  cqe.srqn_user_index = target.user_index;
  cqe.timestamp = std::uint64_t{failure.vendor} << 8 | static_cast<std::uint8_t>(failure.syndrome);
  cqe.sop_qpn = number_;
  cqe.wqe_counter = index;
  ++counters.error_completions;
  post(*target.cq, cqe, /*solicited=*/false);
}

void QueuePair::complete_receive(prm::CqeWords cqe, std::uint16_t index, bool solicited,
                                 std::span<const std::byte> scatter) {
  const ReceiveTarget target = receive_target();
  if (target.cq == nullptr) return;
  cqe.srqn_user_index = target.user_index;
  cqe.sop_qpn = number_;
  cqe.wqe_counter = index;
  ++counters.completions;
  prm::CqeWords* entry = scatter.empty() ? target.cq->entry() : nullptr;
  if (entry == nullptr) {
    post(*target.cq, cqe, solicited, scatter);
    return;
  }
  std::memcpy(static_cast<void*>(entry), &cqe, prm::Cqe::owner_offset);
  target.cq->commit(*entry, static_cast<prm::CqeOpcode>(cqe.op_own >> 4), solicited);
}

// ---- failure and flush

void QueuePair::fail_send(const SendWqe& wqe, Failure failure) {
  const std::uint16_t end = wqe.end;
  complete_send_error(wqe.index, wqe.opcode, failure);
  sq.release(end);
  requester.window().pop();
  if (is_reliable() || only_registers()) {
    enter_error();
    return;
  }
  // IBA 10.3.1.6: a failed send stops only the send queue of UC and UD.
  state = QpState::sq_error;
  requester.stop();
  update_timer();
  core_.schedule(*this);
}

void QueuePair::fail(EventType event) {
  if (state == QpState::error) return;
  core_.events.qp_event(event, number_);
  enter_error();
}

void QueuePair::enter_error() {
  constexpr Nanoseconds kFirstPoll = 100'000;
  if (state == QpState::error) return;
  state = QpState::error;
  core_.lender.recall();  // Flushed work requests give their memory back.
  requester.stop();
  responder.close();
  rq_poll_interval_ = kFirstPoll;
  update_timer();
  core_.schedule(*this);
}

/// Every work request gets its CQE, in order (IBA 10.3.1.7). True if more could be flushed at once.
bool QueuePair::flush(Quantum& quantum) {
  bool more = flush_send(quantum);
  if (state == QpState::error) more = flush_receive(quantum) || more;
  return more;
}

bool QueuePair::flush_send(Quantum& quantum) {
  SendWindow& window = requester.window();
  for (; !window.empty(); window.pop()) {
    if (quantum.spent()) return true;
    quantum.charge_wqe();
    const SendWqe& wqe = window.front();
    sq.release(wqe.end);
    if (wqe.completion != prm::CompletionMode::only_first_error) {
      complete_send_error(wqe.index, wqe.opcode, kFlushed);
    }
  }
  const TakeStatus status = sq.update();
  if (status == TakeStatus::pending) core_.park(*this);
  if (status != TakeStatus::ok) return false;
  while (sq.has_work()) {
    if (quantum.spent()) return true;
    quantum.charge_wqe();
    RawSendWqe raw;
    const TakeStatus taken = sq.take(params.buffer, raw);
    if (taken == TakeStatus::pending) core_.park(*this);
    if (taken != TakeStatus::ok) return false;
    sq.release(sq.consumed());
    const auto opcode =
        static_cast<prm::WqeOpcode>(prm::CtrlSegment::opcode::get(raw.bytes.data()));
    const auto mode =
        static_cast<prm::CompletionMode>(prm::CtrlSegment::completion::get(raw.bytes.data()));
    if (mode != prm::CompletionMode::only_first_error) {
      complete_send_error(raw.index, opcode, kFlushed);
    }
  }
  return false;
}

bool QueuePair::flush_receive(Quantum& quantum) {
  // Receives posted later ring nothing: their counter is looked at now and then.
  constexpr Nanoseconds kSlowestPoll = 20'000'000;
  if (responder.has_current()) {
    const std::uint16_t index = responder.current_index();
    responder.drop_current();
    complete_receive_error(index, kFlushed);
  }
  if (params.srq) {
    // IBA 11.6.3: no more receives of the SRQ will be used by this QP.
    if (!last_wqe_reported_) core_.events.qp_event(EventType::srq_last_wqe, number_);
    last_wqe_reported_ = true;
    return false;
  }
  bool any = false;
  ReceiveWqe wqe;
  TakeStatus status = TakeStatus::ok;
  while (!quantum.spent()) {
    status = rq.take(params.buffer, wqe);
    if (status != TakeStatus::ok) break;
    any = true;
    quantum.charge_wqe();
    complete_receive_error(wqe.index, kFlushed);
  }
  if (status == TakeStatus::ok) return true;
  if (status == TakeStatus::pending) core_.park(*this);
  if (params.has_rq && status == TakeStatus::empty && rq_poll_ == kNever) {
    rq_poll_interval_ = any ? 100'000 : std::min(rq_poll_interval_ * 2, kSlowestPoll);
    rq_poll_ = core_.clock.now() + rq_poll_interval_;
    update_timer();
  }
  return false;
}

}  // namespace softhca
