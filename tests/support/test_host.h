// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "hw-model/ib/port.h"
#include "hw-model/memory/dma_space.h"
#include "hw-model/memory/mkey_table.h"
#include "hw-model/prm/cqe.h"
#include "hw-model/prm/wqe.h"
#include "hw-model/queues/event_queue.h"
#include "hw-model/transport/transport.h"
#include "tests/support/virtual_time.h"

/// A host for transport tests: memory, a transport without firmware, and a driver that writes rings
/// and reads CQEs as mlx5 drivers do. No threads, virtual time.
namespace softhca::transport_test {

using test::VirtualClock;

/// What was reported through AsyncEvents.
struct RecordedEvent {
  EventType type;
  std::uint32_t number;
  std::uint8_t syndrome = 0;
  bool operator==(const RecordedEvent&) const = default;
};

class RecordingEvents final : public AsyncEvents {
 public:
  void qp_event(EventType type, std::uint32_t qpn) override { events.push_back({type, qpn}); }
  void srq_event(EventType type, std::uint32_t srqn) override { events.push_back({type, srqn}); }
  void cq_error(std::uint32_t cqn, std::uint8_t syndrome) override {
    events.push_back({EventType::cq_error, cqn, syndrome});
  }
  std::size_t count(EventType type) const;

  std::vector<RecordedEvent> events;
};

class RecordingInterrupts final : public InterruptSink {
 public:
  void raise(std::uint16_t vector) override { vectors.push_back(vector); }
  std::vector<std::uint16_t> vectors;
};

class TestPort final : public ib::Port {
 public:
  const ib::PortAttributes& attributes() const override { return attributes_; }
  void send(ib::PacketPtr packet) override { on_send(std::move(packet)); }
  bool ready() const override { return is_ready; }
  bool takes_trains() const override { return has_trains; }
  ib::PortAttributes& change() { return attributes_; }

  bool is_ready = true;
  /// Whether packets leave as trains. The environment variable SOFTHCA_TEST_TRAINS lets all tests
  /// of the transport run with them.
  bool has_trains = std::getenv("SOFTHCA_TEST_TRAINS") != nullptr;
  std::function<void(ib::PacketPtr)> on_send = [](ib::PacketPtr) {};

 private:
  ib::PortAttributes attributes_;
};

/// Memory that is reached by calls, and may not be there yet.
class CallMemory final : public DmaBacking {
 public:
  explicit CallMemory(std::size_t size) : bytes(size) {}
  DmaStatus read(std::uint64_t offset, void* to, std::size_t length) override;
  DmaStatus write(std::uint64_t offset, const void* from, std::size_t length) override;

  std::vector<std::byte> bytes;
  bool pending = false;
  unsigned reads = 0;
  unsigned writes = 0;
};

class TestHost {
 public:
  static constexpr std::uint64_t kMemoryBase = 0x1000'0000;
  static constexpr std::uint32_t kPd = 7;

  TestHost(const Clock& clock, std::uint16_t lid, std::size_t memory_size = 24 << 20);

  /// Fresh zeroed memory of the device's address space.
  std::uint64_t allocate(std::size_t size, std::size_t alignment = 64);
  std::byte* at(std::uint64_t iova);
  std::span<std::byte> bytes(std::uint64_t iova, std::size_t size) { return {at(iova), size}; }
  std::uint32_t load_be32(std::uint64_t iova);
  void store_be32(std::uint64_t iova, std::uint32_t value);
  QueueBuffer buffer(std::uint64_t iova, std::size_t size);

  /// A free key for UMR with room for `capacity` units of 16 bytes; returned with variant 0.
  std::uint32_t free_key(TranslationMode mode, std::uint32_t capacity, std::uint32_t pd = kPd);
  /// Key for [va, va + size) with va == iova.
  std::uint32_t register_memory(std::uint64_t iova, std::size_t size, MemoryAccess access,
                                std::uint32_t pd = kPd);
  EventQueue* create_eq(std::uint16_t vector, std::uint8_t log_size = 6);
  /// `count` bytes that depend on `seed`.
  static std::vector<std::byte> pattern(std::size_t count, unsigned seed);
  void fill(std::uint64_t iova, std::span<const std::byte> from);

  const Clock& clock;
  DmaSpace dma;
  MkeyTable mkeys;
  TestPort port;
  RecordingEvents events;
  RecordingInterrupts interrupts;
  ObjectTable<EventQueue> eqs{1, 64};
  Transport transport;

 private:
  /// Zero pages until touched.
  std::unique_ptr<std::byte, void (*)(void*)> memory_;
  std::uint64_t next_;
};

inline constexpr MemoryAccess kAllAccess = MemoryAccess::local_read | MemoryAccess::local_write |
                                           MemoryAccess::remote_read | MemoryAccess::remote_write |
                                           MemoryAccess::remote_atomic;

/// A CQE as its driver reads it.
struct Completion {
  prm::CqeOpcode opcode = prm::CqeOpcode::invalid;
  bool solicited = false;
  prm::CqeFormat format = prm::CqeFormat::no_inline;
  prm::CqeSyndrome syndrome{};
  std::uint8_t vendor = 0;
  std::uint32_t user_index = 0;
  std::uint32_t qpn = 0;
  prm::WqeOpcode send_opcode{};
  std::uint16_t wqe_counter = 0;
  std::uint32_t byte_count = 0;
  std::uint32_t immediate = 0;
  std::uint32_t remote_qpn = 0;
  std::uint16_t source_lid = 0;
  bool grh = false;
  std::array<std::byte, 64> inline_data{};

  bool ok() const {
    return opcode != prm::CqeOpcode::requester_error && opcode != prm::CqeOpcode::responder_error;
  }
};

class TestCq {
 public:
  TestCq(TestHost& host, std::uint8_t log_size = 8, bool cqe128 = false, EventQueue* eq = nullptr);

  std::uint32_t number() const { return cq_->number(); }
  CompletionQueue& device() { return *cq_; }
  std::optional<Completion> poll();
  /// Polls everything there is.
  std::vector<Completion> drain();
  /// Writes the arm word of the doorbell record, and rings if `ring`.
  void arm(bool solicited_only, bool ring = true);
  void next_arm_sequence() { arm_sn_ = (arm_sn_ + 1) & 3; }
  std::uint64_t record() const { return record_; }
  std::uint64_t ring() const { return ring_; }
  std::uint32_t consumer_index() const { return consumer_; }

 private:
  TestHost& host_;
  CompletionQueue* cq_ = nullptr;
  std::uint64_t ring_ = 0;
  std::uint64_t record_ = 0;
  std::uint8_t log_size_;
  bool cqe128_;
  std::uint32_t consumer_ = 0;
  std::uint32_t arm_sn_ = 0;
};

struct Sge {
  std::uint64_t address = 0;
  std::uint32_t length = 0;
  std::uint32_t lkey = 0;
};

/// What makes an SRQ one for XRC.
struct XrcSrqOptions {
  std::uint32_t xrcd = 0;
  TestCq* cq = nullptr;
  std::uint32_t user_index = 0;
  std::uint32_t pd = TestHost::kPd;
};

class TestSrq {
 public:
  explicit TestSrq(TestHost& host, std::uint8_t log_size = 6, std::uint16_t limit = 0,
                   std::uint32_t stride = 64, const XrcSrqOptions& xrc = {});
  std::uint32_t number() const { return srq_->number(); }
  SharedReceiveQueue& device() { return *srq_; }
  /// Index of the WQE written.
  std::uint16_t post(std::span<const Sge> sges);
  /// The WQE of a completion is free again.
  void give_back(std::uint16_t index);
  std::uint64_t ring() const { return ring_; }
  std::uint64_t record() const { return record_; }

 private:
  void link(std::uint16_t from, std::uint16_t to);
  TestHost& host_;
  SharedReceiveQueue* srq_ = nullptr;
  std::uint64_t ring_ = 0;
  std::uint64_t record_ = 0;
  std::uint32_t stride_;
  std::uint16_t head_ = 0;
  std::uint16_t tail_ = 0;
  std::uint16_t counter_ = 0;
};

struct SendRequest {
  prm::WqeOpcode opcode = prm::WqeOpcode::send;
  std::vector<Sge> sges = {};
  std::vector<std::byte> inline_data = {};
  bool use_inline = false;
  std::uint64_t remote_address = 0;
  std::uint32_t rkey = 0;
  std::uint32_t immediate = 0;
  std::uint64_t swap_add = 0;
  std::uint64_t compare = 0;
  std::vector<std::uint8_t> umr = {};  ///< Segments of a UMR; empty: it makes its key free.
  std::uint32_t xrc_srqn = 0;
  bool signalled = true;
  bool solicited = false;
  bool fence = false;
  // UD
  std::uint32_t destination_qpn = 0;
  std::uint16_t destination_lid = 0;
  std::uint32_t qkey = 0;
  std::optional<ib::Gid> destination_gid = std::nullopt;
};

struct TestQpOptions {
  prm::QpServiceType type = prm::QpServiceType::rc;
  std::uint8_t log_sq_size = 7;
  std::uint8_t log_rq_size = 6;
  std::uint32_t rq_stride = 64;
  TestSrq* srq = nullptr;
  std::uint8_t cs_req = 0;
  std::uint8_t cs_res = 0;
  std::uint32_t pd = TestHost::kPd;
  bool block_lb_mc = false;
  bool fast_registration = true;
  std::uint32_t xrcd = 0;
};

class TestQp {
 public:
  TestQp(TestHost& host, TestCq& send_cq, TestCq& recv_cq, TestQpOptions options = {});

  std::uint32_t number() const { return number_; }
  std::uint32_t user_index() const { return user_index_; }
  QpSnapshot query() const { return *host_.transport.query_qp(number_); }
  /// The attributes that connect() uses; change before.
  QpAttributes attributes;
  /// RESET to RTS towards `peer`.
  void connect(const TestQp& peer);
  void to_init();
  void to_rtr(const TestQp* peer);
  void to_rts();
  ModifyResult modify(QpTransition transition, std::uint32_t mask = 0) {
    return host_.transport.modify_qp(number_, transition, attributes, mask);
  }

  /// Writes the WQE; returns its index. ring() makes the device see it.
  std::uint16_t write_send(const SendRequest& request);
  std::uint16_t post_send(const SendRequest& request);
  void ring();
  void post_recv(std::span<const Sge> sges);
  void post_recv(std::initializer_list<Sge> sges) {
    post_recv(std::span<const Sge>(sges.begin(), sges.size()));
  }
  void set_send_counter(std::uint16_t counter);
  std::uint16_t send_counter() const { return sq_counter_; }
  std::uint64_t sq_address() const { return sq_; }
  std::uint64_t record() const { return record_; }
  TestHost& host() { return host_; }
  const TestHost& host() const { return host_; }

 private:
  TestHost& host_;
  TestQpOptions options_;
  std::uint32_t number_ = 0;
  std::uint32_t user_index_ = 0;
  std::uint64_t rq_ = 0;
  std::uint64_t sq_ = 0;
  std::uint64_t record_ = 0;
  std::uint16_t sq_counter_ = 0;
  std::uint16_t rq_counter_ = 0;
};

}  // namespace softhca::transport_test
