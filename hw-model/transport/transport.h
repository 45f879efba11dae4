// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "hw-model/ib/port.h"
#include "hw-model/memory/mkey_table.h"
#include "hw-model/queues/completion_queue.h"
#include "hw-model/queues/object_table.h"
#include "hw-model/queues/queue_events.h"
#include "hw-model/queues/shared_receive_queue.h"
#include "hw-model/runtime/clock.h"
#include "hw-model/runtime/sweep.h"
#include "hw-model/transport/q_counters.h"
#include "hw-model/transport/qp_params.h"

namespace softhca {

class QueuePair;

/// How much one Transport::step() may do.
struct TransportBudget {
  std::uint32_t wqes = 64;
  std::uint64_t bytes = 1 << 20;
};

/// Device-wide switches of the transport.
struct TransportConfig {
  /// Atomics act on the memory word in host (little-endian) order (atomic_caps
  /// req_8B_endianness_mode); else on a big-endian word.
  bool host_endian_atomics = true;
};

/// The transport of one function: its CQs, SRQs and QPs, and the requesters and responders of RC,
/// UC and UD (IBA chapter 9) between them and the port.
///
/// Inputs: doorbell(), receive(), step(), port_ready(), memory_arrived(), modify. Outputs: packets
/// to the port, CQEs, EQEs, async events. receive() handles the packet at once (work bounded by the
/// packet); whatever has to be sent is sent by step(), and ACKs by delivered(). Deterministic and
/// single-threaded.
class Transport final : public CqTimers {
 public:
  Transport(DmaSpace& dma, MkeyTable& mkeys, ib::Port& port, const Clock& clock,
            AsyncEvents& events, TransportConfig config = {});
  ~Transport() override;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  TransportConfig& config();
  /// Everything is destroyed: as after reset or TEARDOWN_HCA.
  void clear();

  // ---- objects
  /// Null: no number is free.
  CompletionQueue* create_cq(CqParams params);
  DestroyResult destroy_cq(std::uint32_t cqn);
  ObjectTable<CompletionQueue>& cqs();

  SharedReceiveQueue* create_srq(SrqParams params);
  DestroyResult destroy_srq(std::uint32_t srqn);
  ObjectTable<SharedReceiveQueue>& srqs();

  /// Null: every set is taken.
  QCounterSet* create_q_counters(std::uint16_t uid);
  /// QPs that the set counts go on uncounted, as QPs that have failed or are being connected do not
  /// take another set.
  DestroyResult destroy_q_counters(std::uint32_t set);
  QCounterSet* q_counters(std::uint32_t set) const;

  /// The new QP's number; none: no number is free, or the parameters contradict each other (queue
  /// outside its buffer, no CQ).
  std::optional<std::uint32_t> create_qp(QpParams params);
  /// In use: attached to a multicast group.
  DestroyResult destroy_qp(std::uint32_t qpn);
  bool has_qp(std::uint32_t qpn) const;
  std::size_t qp_count() const;

  /// A modify command. `opt_mask`: prm::QpOptParam bits of the command; the attributes that the
  /// transition requires are taken in any case (PRM "QP state transitions").
  ModifyResult modify_qp(std::uint32_t qpn, QpTransition transition, const QpAttributes& attributes,
                         std::uint32_t opt_mask);
  std::optional<QpSnapshot> query_qp(std::uint32_t qpn) const;
  const QpParams* qp_params(std::uint32_t qpn) const;
  /// visit(qpn) for every QP, ascending.
  template <typename Visit>
  void for_each_qp(Visit&& visit) const {
    for (std::uint32_t qpn = next_qp(0); qpn != kNoQp; qpn = next_qp(qpn + 1)) visit(qpn);
  }

  /// ATTACH_TO_MCG / DETACH_FROM_MCG. False: no such QP, not UD, or (detach) not attached.
  bool attach_multicast(std::uint32_t qpn, const ib::Gid& mgid);
  bool detach_multicast(std::uint32_t qpn, const ib::Gid& mgid);

  // ---- inputs
  /// The send doorbell record of `qpn` may have moved. Unknown numbers are ignored.
  void doorbell(std::uint32_t qpn);
  /// The same, with the WQE itself (BlueFlame): it is executed as it stands in `wqe`, whole, if it
  /// is the next that its queue comes to.
  void doorbell(std::uint32_t qpn, std::span<const std::uint8_t> wqe);
  /// The same, by a hint that drivers need no more give once the device watches that record, as it
  /// then says in the word of watch_in() (DoorbellHints::watched).
  void hint(std::uint32_t qpn);
  /// Null: no queue is watched. The word must stay until another one is given.
  void watch_in(std::atomic<std::uint32_t>* word);
  void end_watch();
  /// Puts the word of watch_in() right, and rings the queue that it named. True if it was wrong and
  /// named one.
  bool repair_watch();
  /// look_at_watched() has something to do.
  bool watched_rung() const;
  /// Looks at the record that is watched. True if it had moved.
  bool look_at_watched();
  /// hint() follows: asks the processor for what it will look at.
  void expect_doorbell(std::uint32_t qpn) const;
  /// UAR register 0x20: both words, host order.
  void arm_cq(std::uint32_t word0, std::uint32_t word1);
  /// Hint that the arm word of a CQ's record changed.
  void arm_cq_from_record(std::uint32_t cqn);
  /// Looks at doorbell records (SQs and CQ arms), of at most so many QPs and CQs, where the last
  /// call ended.
  Sweep sweep_doorbells(std::uint32_t queues = Sweep::kAll);
  /// False: there is nothing to sweep.
  bool has_doorbell_records() const;

  /// What is to stay of the packet is moved out of it.
  void receive(ib::Packet& packet);
  /// ib::PortClient::direct_receiver().
  ib::Answerer direct_receiver(const ib::Destination& there);
  /// No more packets come for now: acknowledges what did, where that is all there is to answer.
  void delivered();
  void port_ready();
  void memory_arrived();

  /// Until end_turn(), doorbell() may do what it finds at once where no QP waits for its turn, as a
  /// part of the step that follows. `budget`: of that step.
  void lend_turn(const TransportBudget& budget);
  void end_turn();
  /// What doorbells have left of the budget.
  TransportBudget left_of(const TransportBudget& budget) const;
  /// Packets on their way refer to registered memory.
  bool lends() const;
  /// False: step() would do nothing.
  bool has_work() const;
  /// Runs expired timers and queued work. True if work is left that could go on now.
  bool step(const TransportBudget& budget);
  /// Earliest timer; kNever if none. Queued work is told by step() alone.
  Nanoseconds next_deadline() const;

  // CqTimers
  void start_cq_timer(CompletionQueue& cq, Nanoseconds deadline) override;

  /// Port counters of what was refused here.
  std::uint64_t pkey_violations() const;
  std::uint64_t qkey_violations() const;
  std::uint64_t unknown_qp_drops() const;

 private:
  static constexpr std::uint32_t kNoQp = ~0U;
  std::uint32_t next_qp(std::uint32_t from) const;

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace softhca
