// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hw-model/ib/port.h"
#include "hw-model/memory/mkey_table.h"
#include "hw-model/prm/cqe.h"
#include "hw-model/prm/wqe.h"
#include "hw-model/transport/transport.h"
#include "tests/property/host_memory.h"

namespace softhca::property {

/// A piece of local memory of a work request, by virtual address.
struct Piece {
  std::uint64_t va = 0;
  std::uint32_t length = 0;
};

/// A send work request, as an application would post it.
struct SendRequest {
  prm::WqeOpcode opcode = prm::WqeOpcode::send;
  std::vector<Piece> pieces;
  std::vector<std::uint8_t> inline_data;
  bool use_inline = false;
  std::uint64_t remote_va = 0;
  std::uint32_t rkey = 0;
  std::uint64_t swap_add = 0;
  std::uint64_t compare = 0;
  std::uint32_t immediate = 0;
  bool signalled = true;
  bool solicited = false;
  bool fence = false;
  std::uint32_t lkey = 0;  ///< 0: the host's own.
  // UD
  std::uint32_t remote_qpn = 0;
  std::uint32_t qkey = 0;
  std::uint16_t dlid = 0;
};

/// A CQE as an application sees it.
struct Completion {
  std::uint32_t qpn = 0;
  prm::CqeOpcode opcode = prm::CqeOpcode::invalid;
  std::uint16_t wqe_counter = 0;
  std::uint32_t byte_count = 0;
  std::uint32_t immediate = 0;
  std::uint8_t syndrome = 0;
  std::uint8_t send_opcode = 0;
  std::vector<std::uint8_t> inline_data;  ///< Payload that came in the CQE.

  bool is_send() const {
    return opcode == prm::CqeOpcode::requester || opcode == prm::CqeOpcode::requester_error;
  }
  bool is_error() const {
    return opcode == prm::CqeOpcode::requester_error || opcode == prm::CqeOpcode::responder_error;
  }
};
std::string describe(const Completion& completion);

struct HostConfig {
  std::size_t data_pages = 128;
  unsigned slow_data_per_mille = 0;   ///< Accesses to data memory that are pending; 0: direct.
  unsigned slow_queue_per_mille = 0;  ///< The same for queue memory.
  bool cqe128 = false;
};

struct QpConfig {
  prm::QpServiceType type = prm::QpServiceType::rc;
  std::uint8_t log_sq_size = 6;
  std::uint8_t log_rq_size = 5;
  bool use_srq = false;
  std::uint8_t cs_req = 0;
  std::uint8_t cs_res = 0;
};

/// A virtual host: its memory, its transport, and a driver that works on queues in memory as a real
/// one does.
class SimHost final : public ib::PortClient, private AsyncEvents {
 public:
  static constexpr unsigned kMaxPieces = 4;

  SimHost(const HostConfig& config, ib::Port& port, const Clock& clock, Random random);
  ~SimHost() override;

  HostMemory& memory() { return memory_; }
  Transport& transport() { return transport_; }
  std::uint32_t key() const { return key_; }  ///< All rights on all of memory().
  std::uint32_t read_only_key() const { return read_only_key_; }

  std::uint32_t create_qp(const QpConfig& config);
  /// False: the queue is full.
  bool post_send(std::uint32_t qpn, const SendRequest& request, std::uint16_t& index);
  bool has_receive_room(std::uint32_t qpn) const;
  bool has_srq_room() const { return srq_.head != srq_.tail; }
  bool post_receive(std::uint32_t qpn, const std::vector<Piece>& pieces, std::uint16_t& index);
  bool post_srq_receive(const std::vector<Piece>& pieces, std::uint16_t& index);
  /// The send queue up to the WQE `index` is free again.
  void release_send(std::uint32_t qpn, std::uint16_t index);
  void release_receive(std::uint32_t qpn);
  void release_srq_receive(std::uint16_t index);

  /// Next CQE of any CQ.
  std::optional<Completion> poll();

  /// True: work is left that could go on now.
  bool step(const TransportBudget& budget);
  Nanoseconds next_deadline() const;
  const std::vector<std::string>& events() const { return events_; }
  /// Slow memory is always there from now on.
  void stop_being_slow();

  // ib::PortClient
  void receive(ib::Packet& packet) override { transport_.receive(packet); }
  void delivered() override { transport_.delivered(); }
  void port_ready() override { transport_.port_ready(); }
  void port_event(ib::PortEvent) override {}

 private:
  struct Cq {
    std::uint32_t number = 0;
    std::uint64_t buffer = 0;
    std::uint64_t record = 0;
    std::uint32_t consumer = 0;
  };
  struct Qp {
    QpConfig config;
    std::uint64_t rq = 0;
    std::uint64_t sq = 0;
    std::uint64_t record = 0;
    std::uint16_t sq_head = 0;                                 ///< Basic blocks posted.
    std::uint16_t sq_tail = 0;                                 ///< Basic blocks free again.
    std::deque<std::pair<std::uint16_t, std::uint16_t>> sent;  ///< First block, end.
    std::uint16_t rq_head = 0;
    std::uint16_t rq_tail = 0;
  };
  struct Srq {
    std::uint32_t number = 0;
    std::uint64_t buffer = 0;
    std::uint64_t record = 0;
    std::uint16_t head = 0;
    std::uint16_t tail = 0;
    std::uint16_t counter = 0;
  };

  std::uint64_t allocate_queue(std::uint64_t bytes, std::uint64_t alignment);
  std::byte* queue_at(std::uint64_t iova) { return &queue_storage_.at(iova - kQueueIova); }
  template <typename T>
  T& queue_as(std::uint64_t iova) {
    return *reinterpret_cast<T*>(queue_at(iova));
  }
  QueueBuffer queue_buffer(std::uint64_t iova, std::uint64_t bytes);
  Cq create_cq();
  void create_srq();
  std::vector<std::uint8_t> build_send(const Qp& qp, std::uint32_t qpn, const SendRequest& request,
                                       std::uint16_t index) const;
  void write_scatter(std::uint64_t iova, std::size_t capacity, const std::vector<Piece>& pieces);
  std::optional<Completion> poll(Cq& cq);

  void qp_event(EventType type, std::uint32_t qpn) override;
  void srq_event(EventType type, std::uint32_t srqn) override;
  void cq_error(std::uint32_t cqn, std::uint8_t syndrome) override;

  static constexpr std::uint64_t kQueueIova = 0x1000000000ULL;
  static constexpr std::size_t kQueueSize = 512 << 10;
  static constexpr std::uint32_t kPd = 7;
  static constexpr std::uint8_t kLogCqSize = 9;
  static constexpr std::uint8_t kLogSrqSize = 7;

  HostConfig config_;
  const Clock& clock_;
  Random random_;
  HostMemory memory_;
  std::vector<std::byte> queue_storage_;
  std::uint64_t queue_used_ = 0;
  std::shared_ptr<SlowMemory> slow_data_;
  std::shared_ptr<SlowMemory> slow_queue_;
  Nanoseconds memory_arrives_ = kNever;
  DmaSpace dma_;
  MkeyTable mkeys_;
  Transport transport_;
  std::uint32_t key_ = 0;
  std::uint32_t read_only_key_ = 0;
  std::vector<Cq> cqs_;  ///< Sends, receives.
  Srq srq_;
  std::map<std::uint32_t, Qp> qps_;
  std::vector<std::string> events_;
};

}  // namespace softhca::property
