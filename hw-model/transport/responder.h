// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "hw-model/ib/opcodes.h"
#include "hw-model/memory/mkey_table.h"
#include "hw-model/queues/receive_queue.h"
#include "hw-model/transport/core.h"
#include "hw-model/transport/syndromes.h"

namespace softhca {

class QueuePair;
enum class Handled : std::uint8_t;

/// The receiving half of a QP: checks and executes request packets, makes responses
/// (IBA 9.7.4, 9.7.5.2, 9.8.3).
class Responder {
 public:
  explicit Responder(QueuePair& qp) : qp_(qp) {}

  // Of a reliable connection, at the other end of a way that no packet needs to be made for
  // (ib::Port::open_way()). What packets would certainly succeed with is taken, after all the
  // checks that packets are subject to; whatever else is refused, with nothing changed that packets
  // would not change, and those that are then sent meet what the refusal was for.

  /// True: executed, and acknowledged by a positive ACK of this request.
  bool execute(const ib::DirectRequest& request);
  /// RDMA READ of `length` >= 1 bytes with a response of `packets` packets at the requester's path
  /// MTU. Not null: accepted; the response is what lies there.
  const std::byte* read(std::uint32_t psn, std::uint32_t packets, std::uint64_t va,
                        std::uint32_t rkey, std::uint32_t length);

  void reset(std::uint32_t expected_psn);
  /// The QP failed: no more requests, but what was owed (a NAK included) still leaves.
  void close();
  /// Nothing more leaves.
  void stop();

  Handled handle_request(ib::Packet& packet);
  Handled handle_datagram(ib::Packet& packet);
  /// Sends responses. True if more could be sent at once.
  bool run(Quantum& quantum);
  /// Sends an ACK that is due without waiting for the QP's turn: the QP is about to go, and its
  /// consumer has seen the messages, so that the peer must not repeat them in vain.
  void acknowledge();

  void memory_arrived() { waiting_ = false; }
  bool waiting() const { return waiting_; }

  bool owes() const { return !responses_.empty() || nak_.has_value() || ack_due_; }
  std::uint32_t expected_psn() const { return expected_psn_; }
  std::uint32_t msn() const { return msn_; }
  /// XRC: SRQ that the message in progress names.
  std::uint32_t srqn() const { return srqn_; }
  /// Receive WQE of the message in progress, if any.
  bool has_current() const { return has_current_; }
  std::uint16_t current_index() const { return current_.index; }
  void drop_current() { has_current_ = false; }

 private:
  /// A READ or atomic that was accepted: kept for duplicates, and while its response is being sent.
  struct Resource {
    std::uint32_t psn = 0;
    std::uint32_t count = 0;  ///< PSNs of the response.
    bool atomic = false;
    std::uint64_t value = 0;  ///< Atomic: original data.
  };
  struct Response {
    std::uint32_t psn = 0;
    std::uint32_t count = 1;
    std::uint32_t sent = 0;  ///< Packets.
    bool atomic = false;
    std::uint64_t value = 0;
    std::uint64_t va = 0;
    std::uint32_t rkey = 0;
    std::uint32_t pd = 0;  ///< That the R_Key must belong to.
    std::uint32_t length = 0;
    std::uint32_t msn = 0;
    std::uint64_t serial = 0;  ///< Staging::stream.
    bool duplicate = false;    ///< Owed a second time.
  };
  enum class Message : std::uint8_t { none, send, write };
  enum class Wqe : std::uint8_t { ok, none, pending, failed };

  // responder.cpp: checks in the order of IBA 9.7.4.1
  Handled handle_reliable(ib::Packet& packet);
  Handled handle_unreliable(ib::Packet& packet);
  bool sequence_valid(const ib::Packet& packet) const;
  bool length_valid(const ib::Packet& packet) const;
  bool train_valid(const ib::Packet& train) const;
  bool srq_valid(const ib::Packet& packet);
  Handled execute(ib::Packet& packet);
  void accept(std::uint32_t psn_count);
  void reject(std::uint32_t psn, ib::NakCode code);
  void nak_sequence();
  void nak_rnr();
  void fail_receive(Failure failure, ib::NakCode code);

  // responder_execute.cpp
  Handled execute_send(ib::Packet& packet);
  Handled execute_write(ib::Packet& packet);
  Handled execute_read(const ib::Packet& packet);
  Handled execute_atomic(const ib::Packet& packet);
  Wqe need_wqe();
  void complete_message(std::uint8_t opcode, std::uint32_t immediate, bool solicited);
  MemoryStatus scatter(std::uint64_t offset, const std::byte* from, std::uint64_t length,
                       bool last);
  MemoryStatus remote_write(const ib::Packet& packet, const MemoryContext& context, bool last);

  // responder_direct.cpp
  bool fits(std::uint32_t packets, std::uint32_t length) const;
  bool expects(std::uint32_t psn, std::uint32_t packets, std::uint32_t length) const;
  std::byte* remote_span(std::uint64_t va, std::uint32_t rkey, std::uint32_t length,
                         MemoryAccess access) const;
  std::byte* find_remote_span(std::uint64_t va, std::uint32_t rkey, std::uint32_t length,
                              MemoryAccess access) const;
  bool write_direct(const ib::DirectRequest& request, bool receives);
  bool receive_direct(const ib::DirectRequest& request);
  void count_message();

  // responder_response.cpp
  void handle_duplicate(const ib::Packet& packet);
  void duplicate_read(const ib::Packet& packet);
  void duplicate_atomic(const ib::Packet& packet);
  bool resource_free();
  void remember(const Resource& resource);
  void enqueue(Response response);
  bool send_response(Quantum& quantum);
  bool send_read_packet(Response& response, Quantum& quantum);
  void send_ack(std::uint32_t psn, std::uint8_t syndrome);

  QueuePair& qp_;
  std::uint32_t expected_psn_ = 0;
  std::uint32_t msn_ = 0;
  Message message_ = Message::none;
  bool discarding_ = true;      ///< UC: until the next first packet.
  std::uint64_t received_ = 0;  ///< Bytes of the message so far.
  std::uint32_t srqn_ = 0;
  ReceiveWqe current_;
  bool has_current_ = false;
  std::uint64_t write_va_ = 0;
  std::uint32_t write_rkey_ = 0;
  std::uint32_t write_length_ = 0;

  struct Nak {
    std::uint32_t psn;
    std::uint8_t syndrome;
  };
  std::vector<Response> responses_;  ///< By PSN.
  std::optional<Nak> nak_;           ///< After the responses.
  bool nak_sent_ = false;  ///< Until the expected packet comes, no other NAK (one per gap).
  bool rnr_gap_ = false;   ///< nak_sent_ is for a packet refused with an RNR NAK, not a lost one.
  bool ack_due_ = false;
  bool closed_ = false;
  bool waiting_ = false;  ///< A READ response waits for memory.
  std::uint64_t next_serial_ = 0;
  std::vector<Resource> resources_;  ///< Ring of the last READs and atomics.
  std::size_t next_resource_ = 0;
  std::array<std::byte, 64> inline_{};  ///< Payload for scatter to CQE.
};

}  // namespace softhca
