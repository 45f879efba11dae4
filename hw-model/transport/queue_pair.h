// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "hw-model/ib/opcodes.h"
#include "hw-model/runtime/ring.h"
#include "hw-model/transport/core.h"
#include "hw-model/transport/qp_params.h"
#include "hw-model/transport/requester.h"
#include "hw-model/transport/responder.h"
#include "hw-model/transport/syndromes.h"

namespace softhca {

/// What became of a packet or an operation that touches host memory. `one_by_one`: nothing, the
/// packets of the train may fare differently.
enum class Handled : std::uint8_t { done, pending, one_by_one };

/// One queue pair: its queues, its state, and the two halves of its transport.
class QueuePair {
 public:
  QueuePair(std::uint32_t number, Core& core, QpParams params);

  std::uint32_t number() const { return number_; }
  Core& core() { return core_; }
  const Core& core() const { return core_; }
  bool is_datagram() const { return service_ == ib::Service::ud; }
  bool is_xrc() const { return service_ == ib::Service::xrc; }
  bool is_reliable() const { return service_ == ib::Service::rc || is_xrc(); }
  /// Only changes memory keys: no peer, no packets.
  bool only_registers() const { return params.type == prm::QpServiceType::reg_umr; }
  ib::Service service() const { return service_; }
  /// Bytes of payload of a full packet.
  std::uint32_t mtu() const {
    return is_datagram() ? full_packet(core_.port_attributes.active_mtu) : path_mtu_;
  }
  /// The same of a connection.
  std::uint32_t path_mtu() const { return path_mtu_; }
  /// Number that UD packets carry as their source.
  std::uint32_t source_qpn() const;
  MemoryContext memory_context() const {
    return {.pd = params.pd,
            .qpn = number_,
            .reserved_lkey = params.reserved_lkey,
            .any_pd = only_registers(),
            .fast_registration = params.fast_registration || only_registers()};
  }

  /// SRQ that receives come from now: the QP's own, or the one that the XRC message being received
  /// names. Null: none, or not of the QP's XRC domain.
  SharedReceiveQueue* receive_srq() const;
  /// XRC SRQ of a request; null if it does not exist or is not of the QP's XRC domain.
  SharedReceiveQueue* xrc_srq(std::uint32_t srqn) const;
  /// For receive buffers: entries of an SRQ are checked against the SRQ's protection domain
  /// (IBA 10.2.9.1).
  MemoryContext receive_context() const;
  /// For the R_Key of a request. XRC: the protection domain is the named SRQ's (IBA A14); the
  /// request has been found to name one.
  MemoryContext remote_context(const ib::Packet& packet) const;

  ModifyResult modify(QpTransition transition, const QpAttributes& attributes,
                      std::uint32_t opt_mask);
  QpSnapshot snapshot() const;

  void doorbell();
  /// A packet for this QP, its P_Key already checked. Takes out of it what has to wait.
  void receive(ib::Packet& packet);
  /// Sends and completes what the quantum allows. True if more could be done at once.
  bool run(Quantum& quantum);
  void timer_expired();
  void memory_arrived();

  /// A work request of the send queue failed: error CQE, then the QP (RC) or its send queue (UC,
  /// UD) stops.
  void fail_send(const SendWqe& wqe, Failure failure);
  /// The QP stops; every WQE is flushed by run().
  void enter_error();
  /// Async event and error state.
  void fail(EventType event);

  /// Its responder takes a request that comes now, not behind others, and without an event.
  bool listens_at_once() const {
    return inbox_.empty() && (state == prm::QpState::rts || state == prm::QpState::sq_drained ||
                              (state == prm::QpState::rtr && established_));
  }

  /// Takes a receive WQE from the RQ or SRQ.
  TakeStatus take_receive_wqe(ReceiveWqe& wqe);

  void complete_send(const SendWqe& wqe, std::uint32_t byte_count,
                     std::span<const std::byte> scatter = {}) {
    if (wqe.signalled()) complete_send(wqe.index, wqe.opcode, byte_count, scatter);
  }
  void complete_send(std::uint16_t index, prm::WqeOpcode opcode, std::uint32_t byte_count,
                     std::span<const std::byte> scatter = {});
  /// The same without `scatter`, into the entry itself if that is possible.
  void complete_send_quickly(std::uint16_t index, prm::WqeOpcode opcode, std::uint32_t byte_count) {
    prm::CqeWords* cqe = params.send_cq ? params.send_cq->entry() : nullptr;
    if (cqe == nullptr) {
      complete_send(index, opcode, byte_count);
      return;
    }
    // Written where it stays, and not copied there. The last byte still says that it is the
    // driver's.
    std::memset(static_cast<void*>(cqe), 0, offsetof(prm::CqeWords, byte_count));
    cqe->srqn_user_index = params.user_index;
    cqe->byte_count = byte_count;
    cqe->sop_qpn = static_cast<std::uint32_t>(opcode) << 24 | number_;
    cqe->wqe_counter = index;
    cqe->signature = 0;
    params.send_cq->commit(*cqe, prm::CqeOpcode::requester, /*solicited=*/false);
    ++counters.completions;
  }
  void complete_send_error(std::uint16_t index, prm::WqeOpcode opcode, Failure failure);
  void complete_receive_error(std::uint16_t index, Failure failure);
  /// `cqe` needs opcode, byte count and what is particular to the message.
  void complete_receive(prm::CqeWords cqe, std::uint16_t index, bool solicited,
                        std::span<const std::byte> scatter = {});

  /// Packet to the peer (RC, UC): path, P_Key, destination QP, PSN are set, the payload is empty.
  /// It is the core's one packet: to be sent before another is made, or forgotten.
  ib::Packet& make_packet(std::uint8_t opcode, std::uint32_t psn);
  /// At once, or by the port's queue: then a reliable QP lends the memory that the payload is a
  /// view of, for the work request is not complete before the peer has it.
  void send_packet(ib::Packet& packet);
  /// Where the packets to the peer go.
  ib::Destination destination() const {
    ib::Destination peer;
    peer.slid = core_.source_lid(attributes.path.path_bits);
    peer.dlid = attributes.path.dlid;
    peer.pkey = core_.pkey(attributes.pkey_index);
    peer.qpn = attributes.remote_qpn;
    peer.has_grh = attributes.path.has_grh;
    return peer;
  }
  /// Counters of the QP's set.
  QCounters& q_counters() { return *q_counters_; }
  /// The set goes away.
  void stop_counting(const QCounters& set) {
    if (q_counters_ == &set) q_counters_ = &core_.uncounted;
  }
  /// Earliest of the QP's own deadlines to the core.
  void update_timer();

  QpParams params;
  QpAttributes attributes;
  prm::QpState state = prm::QpState::reset;
  QpCounters counters;
  SendQueue sq;
  ReceiveQueue rq;
  Requester requester;
  Responder responder;

  // Bookkeeping of Core.
  bool queued = false;
  bool owing = false;
  bool parked = false;
  TimerWheel<QueuePair>::Entry timer{*this};

 private:
  static constexpr std::size_t kMaxInbox = 1024;

  /// Where the completions of receives go.
  struct ReceiveTarget {
    CompletionQueue* cq;
    std::uint32_t user_index;
  };
  ReceiveTarget receive_target() const;
  /// Bytes by their code; nothing yet, or nonsense, counts as the least.
  static std::uint32_t full_packet(std::uint8_t code) {
    const std::uint32_t bytes = ib::mtu_bytes(code);
    return bytes == 0 ? 256 : bytes;
  }
  bool drain_inbox(Quantum& quantum);
  Handled handle(ib::Packet& packet);
  void take_apart(ib::PacketPtr train);
  ib::PacketPtr keep(ib::Packet& packet);
  bool flush(Quantum& quantum);
  bool flush_send(Quantum& quantum);
  bool flush_receive(Quantum& quantum);
  void to_reset();
  void apply_required(QpTransition transition, const QpAttributes& from);
  void apply_optional(const QpAttributes& from, std::uint32_t opt_mask);
  void prepare_headers();
  struct Stall {
    StallCause cause = StallCause::none;
    std::string reason;
  };
  Stall stall() const;
  void use_counter_set(std::uint8_t set);
  void post(CompletionQueue& cq, const prm::CqeWords& cqe, bool solicited,
            std::span<const std::byte> scatter = {}) {
    const bool was_good = !cq.in_error();
    if (!cq.post(cqe, solicited, scatter) && was_good) ++q_counters_->cq_overflow;
  }
  void count_send_error(prm::CqeSyndrome syndrome);
  void count_receive_error(prm::CqeSyndrome syndrome);

  std::uint32_t number_;
  ib::Service service_;
  Core& core_;
  QCounters* q_counters_;
  ib::PacketHeaders headers_;  ///< Of packets to the peer, but for what the port's tables say.
  std::uint32_t path_mtu_ = full_packet(QpAttributes{}.mtu);  ///< Of connections.
  Ring<ib::PacketPtr> inbox_;   ///< Behind a packet whose memory is pending.
  bool inbox_waiting_ = false;  ///< Its memory has not arrived yet.
  bool established_ = false;    ///< communication_established was reported.
  bool last_wqe_reported_ = false;
  Nanoseconds rq_poll_ = kNever;  ///< Next look at the RQ counter of a QP in error.
  Nanoseconds rq_poll_interval_ = 0;
};

}  // namespace softhca
