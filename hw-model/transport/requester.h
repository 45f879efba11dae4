// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <vector>

#include "hw-model/memory/mkey_table.h"
#include "hw-model/runtime/clock.h"
#include "hw-model/transport/core.h"
#include "hw-model/transport/send_wqe.h"
#include "hw-model/transport/syndromes.h"

namespace softhca {

class QueuePair;
struct DirectWqe;
enum class Handled : std::uint8_t;

/// WQEs between "taken from the send queue" and "completed", oldest first, addressed by a running
/// number.
class SendWindow {
 public:
  static constexpr std::uint32_t kCapacity = 512;

  bool empty() const { return begin_ == end_; }
  bool full() const { return end_ - begin_ == kCapacity; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(end_ - begin_); }
  std::uint64_t begin() const { return begin_; }
  std::uint64_t end() const { return end_; }
  SendWqe& at(std::uint64_t number) { return slots_[number % slots_.size()]; }
  const SendWqe& at(std::uint64_t number) const { return slots_[number % slots_.size()]; }
  SendWqe& front() { return at(begin_); }
  const SendWqe& front() const { return at(begin_); }
  /// A slot for the next WQE, contents left over; counts when push() is called.
  SendWqe& next();
  void push() { ++end_; }
  void pop() { ++begin_; }
  void clear() { begin_ = end_; }

 private:
  std::vector<SendWqe> slots_;  ///< Power of two, grows to kCapacity.
  std::uint64_t begin_ = 0;
  std::uint64_t end_ = 0;
};

/// The sending half of a QP: takes send WQEs, makes request packets, handles responses and retries
/// (IBA 9.7.3, 9.7.5.1, 9.7.6).
class Requester {
 public:
  explicit Requester(QueuePair& qp) : qp_(qp) {}

  /// Back to the start, nothing outstanding; `psn`: first to send.
  void reset(std::uint32_t psn);
  /// Limits of retries are taken from the QP's attributes again.
  void start();
  /// Nothing is sent or waited for any more; the window is left for the flush.
  void stop();

  /// The QP has gone to SQD: sq_drained is reported when what was begun is done.
  void begin_drain();

  /// Sends. True if more could be sent at once.
  bool run(Quantum& quantum);
  /// The part of run() that needs no packets. False: there is more to do, which run() has to.
  bool run_at_once(Quantum& quantum);
  Handled handle_response(ib::Packet& packet);
  void timer_expired();
  Nanoseconds deadline() const { return deadline_; }

  SendWindow& window() { return window_; }
  const SendWindow& window() const { return window_; }
  std::uint32_t next_psn() const { return next_psn_; }
  std::uint32_t unacked_psn() const { return una_; }
  void memory_arrived() { waiting_ = false; }
  bool waiting() const { return waiting_; }
  bool waiting_for_rnr() const { return rnr_wait_; }
  bool idle() const;
  std::uint32_t outstanding_reads() const { return outstanding_reads_; }
  std::uint8_t retries_left() const { return retries_left_; }

 private:
  enum class Step : std::uint8_t { sent, blocked, pending };

  // requester.cpp
  bool may_send() const;
  Step fetch();
  Step transmit(Quantum& quantum);
  Step transmit_read(SendWqe& wqe, Quantum& quantum);
  Step transmit_atomic(SendWqe& wqe, Quantum& quantum);
  Step transmit_message(SendWqe& wqe, Quantum& quantum);
  Step transmit_datagram(SendWqe& wqe, Quantum& quantum);
  Step execute_local(SendWqe& wqe, Quantum& quantum);
  Step execute_umr(SendWqe& wqe, Quantum& quantum);  // requester_umr.cpp
  void finish_transmit(SendWqe& wqe);
  void fail_wqe(SendWqe& wqe, Failure failure);
  /// `ahead`: bytes from `offset` on that this turn can send, `length` at least.
  std::uint32_t train_length(std::uint64_t left, std::uint32_t psn, const Quantum& quantum) const;
  bool view(const SendWqe& wqe, std::uint64_t offset, std::uint64_t size,
            ib::Payload& payload) const;
  MemoryStatus gather(SendWqe& wqe, std::uint64_t offset, std::byte* to, std::uint64_t length,
                      std::uint64_t ahead);
  bool wants_ack(std::uint32_t psn, std::uint32_t count, bool last) const;

  // requester_direct.cpp
  bool may_go_directly() const;
  bool find_way();
  void run_directly(Quantum& quantum);
  bool send_directly(DirectWqe& wqe);
  bool read_directly(const DirectWqe& wqe);
  std::byte* local_span(const DirectWqe& wqe, MemoryAccess access) const;
  std::byte* find_local_span(const DirectWqe& wqe, MemoryAccess access) const;
  void count_directly(const ib::WayTraffic& traffic, std::uint64_t messages);
  bool run_segmented(DirectWqe& wqe, Quantum& quantum);
  std::uint16_t finish_directly(std::uint32_t packets);

  // requester_response.cpp
  bool acknowledge(std::uint32_t psn_end);
  void pop_front();
  void settle();
  Handled handle_read_response(ib::Packet& packet);
  Handled handle_atomic_response(ib::Packet& packet);
  void handle_ack(std::uint32_t psn);
  void handle_nak(std::uint32_t psn, std::uint8_t code);
  void handle_rnr_nak(std::uint32_t psn, std::uint8_t timer);
  void implied_nak();
  void go_back();
  /// `recoverable`: the Q counter of what went wrong, if a retry may still mend it.
  void retry_or_fail(std::uint32_t QCounters::*recoverable);
  void progress();
  void restart_timer();
  MemoryStatus scatter(SendWqe& wqe, std::uint64_t offset, const std::byte* from,
                       std::uint64_t length);

  QueuePair& qp_;
  SendWindow window_;
  std::uint64_t send_at_ = 0;      ///< Running number of the WQE being sent.
  std::uint32_t send_packet_ = 0;  ///< Next packet of it.
  std::uint32_t next_psn_ = 0;     ///< For the next WQE taken.
  std::uint32_t una_ = 0;          ///< Oldest PSN not acknowledged.
  std::uint32_t sent_end_ = 0;     ///< After the highest PSN ever sent.
  std::uint32_t asked_end_ =
      0;  ///< After the last packet sent (since going back) that asks for an answer.
  std::uint32_t outstanding_reads_ = 0;  ///< READs and atomics sent and not answered.
  std::uint8_t retries_left_ = 0;
  std::uint8_t rnr_retries_left_ = 0;
  bool rnr_wait_ = false;
  bool went_back_ = false;  ///< Since the last progress: one retry per gap.
  bool drain_reported_ = false;
  bool waiting_ = false;        ///< For memory.
  bool needs_packets_ = false;  ///< As run_at_once() has found; run() need not try again.
  Nanoseconds deadline_ = kNever;
  ib::Way way_;  ///< To the peer's responder, while its epoch lasts; no receiver: it is not free.
};

}  // namespace softhca
