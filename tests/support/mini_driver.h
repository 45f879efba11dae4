// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "hw-model/device/function.h"
#include "hw-model/prm/command_queue.h"
#include "hw-model/prm/cqe.h"
#include "hw-model/prm/opcodes.h"
#include "hw-model/prm/qp_context.h"
#include "hw-model/prm/wqe.h"
#include "tests/support/guest_memory.h"
#include "tests/support/registers.h"

namespace softhca::test {

/// Thrown when a command that a test takes for granted fails.
class DriverError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What came back of a command.
struct CommandReply {
  prm::CommandDeliveryStatus delivery = prm::CommandDeliveryStatus::ok;
  prm::CommandStatus status = prm::CommandStatus::ok;
  std::uint32_t syndrome = 0;
  std::vector<std::uint8_t> out;

  bool ok() const {
    return delivery == prm::CommandDeliveryStatus::ok && status == prm::CommandStatus::ok;
  }
};

/// Input of a command under construction: a buffer with its head filled.
class CommandBuffer {
 public:
  CommandBuffer(prm::CommandOpcode opcode, std::size_t size, std::uint16_t op_mod = 0);

  template <typename F>
  CommandBuffer& set(std::uint64_t value) {
    F::set(bytes_.data(), value);
    return *this;
  }
  template <typename B>
  std::uint8_t* at() {
    return B::at(bytes_.data());
  }
  /// Appends big-endian 64-bit addresses.
  CommandBuffer& append(std::span<const std::uint64_t> addresses);
  const std::vector<std::uint8_t>& bytes() const { return bytes_; }

 private:
  std::vector<std::uint8_t> bytes_;
};

struct DriverEq {
  std::uint32_t eqn = 0;
  std::uint64_t buffer = 0;
  unsigned log_size = 0;
  std::uint32_t consumer = 0;
  std::uint32_t uar = 0;
};

/// An EQE as read.
struct DriverEvent {
  std::uint8_t type = 0;
  std::uint8_t subtype = 0;
  std::array<std::uint8_t, 28> data{};
};

struct DriverCq {
  std::uint32_t cqn = 0;
  std::uint64_t buffer = 0;
  std::uint64_t doorbell = 0;
  unsigned log_size = 0;
  unsigned cqe_size = 64;
  std::uint32_t consumer = 0;
  std::uint32_t arm_sn = 0;
  std::uint32_t uar = 0;
};

/// A CQE as read.
struct Completion {
  prm::CqeOpcode opcode = prm::CqeOpcode::invalid;
  std::uint32_t qpn = 0;
  std::uint32_t user_index = 0;
  std::uint16_t wqe_counter = 0;
  std::uint32_t byte_count = 0;
  std::uint32_t immediate = 0;
  std::uint8_t syndrome = 0;
  std::uint8_t vendor_syndrome = 0;
  std::uint32_t source_qpn = 0;
  bool solicited = false;

  bool error() const {
    return opcode == prm::CqeOpcode::requester_error || opcode == prm::CqeOpcode::responder_error;
  }
};

struct DriverSrq {
  std::uint32_t srqn = 0;
  std::uint64_t buffer = 0;
  std::uint64_t doorbell = 0;
  unsigned log_size = 0;
  unsigned stride = 0;
  std::uint16_t posted = 0;
};

struct QpOptions {
  prm::QpServiceType type = prm::QpServiceType::rc;
  unsigned log_sq_size = 7;    ///< Blocks of 64 bytes.
  unsigned log_rq_size = 6;    ///< WQEs.
  unsigned log_rq_stride = 2;  ///< 16 << n bytes: 4 entries.
  std::uint32_t srqn = 0;      ///< Not 0: no receive queue of its own.
  std::uint32_t user_index = 0x123;
};

struct DriverQp {
  std::uint32_t qpn = 0;
  QpOptions options;
  std::uint64_t rq = 0;
  std::uint64_t sq = 0;
  std::uint64_t doorbell = 0;
  std::uint16_t sq_blocks = 0;  ///< Producer counters.
  std::uint16_t rq_wqes = 0;
  std::uint32_t uar = 0;
};

struct DriverMr {
  std::uint64_t address = 0;  ///< Virtual address; equals the I/O virtual address.
  std::uint64_t length = 0;
  std::uint32_t key = 0;
};

struct Sge {
  std::uint64_t address = 0;
  std::uint32_t length = 0;
  std::uint32_t lkey = 0;
};

struct SendRequest {
  prm::WqeOpcode opcode = prm::WqeOpcode::send;
  std::vector<Sge> sges;
  std::vector<std::uint8_t> inline_data;
  std::uint64_t remote_address = 0;
  std::uint32_t rkey = 0;
  std::uint64_t swap_add = 0;
  std::uint64_t compare = 0;
  std::uint32_t immediate = 0;
  bool signaled = true;
  bool solicited = false;
  bool fence = false;
  // UD
  std::uint32_t remote_qpn = 0;
  std::uint32_t qkey = 0;
  std::uint16_t dlid = 0;
  std::optional<std::array<std::uint8_t, 16>> dgid = std::nullopt;  ///< Set: a GRH goes along.
};

struct QpAccess {
  bool remote_read = true;
  bool remote_write = true;
  bool remote_atomic = true;
};

struct QpTimers {
  unsigned ack_timeout = 14;
  unsigned retry_count = 7;
  unsigned rnr_retry = 7;
  unsigned min_rnr_nak = 12;
  unsigned log_rd_atomic = 4;
};

/// Access bits of register_memory.
enum MrAccess : unsigned {
  kLocalRead = 1,
  kLocalWrite = 2,
  kRemoteRead = 4,
  kRemoteWrite = 8,
  kRemoteAtomic = 16,
  kAllAccess = 31,
};

/// A driver for tests: posts commands with mailboxes, brings the HCA up as a kernel driver does,
/// makes queues in its own GuestMemory and rings their doorbells.
///
/// Several threads may poll, arm, queue and ring at once, each on queues of its own; everything
/// else is for one thread.
class MiniDriver {
 public:
  /// `pump` runs the device (and whatever else is needed) a little; default: function.step().
  explicit MiniDriver(Function& function, std::uint64_t memory_size = 64ULL << 20,
                      std::function<void()> pump = nullptr);
  /// A device elsewhere, which runs by itself: `pump` waits a little. The memory is shared; whoever
  /// makes the driver maps it for the device.
  MiniDriver(Registers& registers, std::uint64_t memory_size, std::function<void()> pump);

  GuestMemory& memory() { return memory_; }

  // ---- registers
  std::uint32_t read32(std::uint64_t offset);
  void write32(std::uint64_t offset, std::uint32_t value);
  void write64(std::uint64_t offset, std::uint32_t first, std::uint32_t second);

  // ---- commands
  /// Tells the device where the command queue is.
  void start_command_queue();
  /// Fills a slot and its mailboxes without ringing.
  void prepare(unsigned slot, std::span<const std::uint8_t> in, std::size_t out_length);
  void ring(std::uint32_t vector);
  bool completed(unsigned slot);
  CommandReply collect(unsigned slot);
  /// Slot entry in memory, and mailbox `block` of its input or output, for tests that damage them.
  std::uint8_t* entry(unsigned slot);
  std::uint8_t* input_mailbox(unsigned slot, unsigned block);
  std::uint8_t* output_mailbox(unsigned slot, unsigned block);
  /// Recomputes the signatures of a prepared slot.
  void sign(unsigned slot);
  void set_signing(bool on) { signing_ = on; }
  /// Whole command in slot 0; `in` is as long as it is.
  CommandReply run(const CommandBuffer& in, std::size_t out_length = 16);
  /// As run(); throws DriverError unless it succeeds.
  CommandReply must(const CommandBuffer& in, std::size_t out_length = 16);

  // ---- bring-up
  /// ENABLE_HCA to INIT_HCA: ISSI, boot pages, capabilities, init pages.
  void initialize_hca();
  /// initialize_hca(), a UAR, a PD and event queues: commands and pages, asynchronous events,
  /// completions.
  void bring_up();
  void give_pages(std::uint32_t count);
  void tear_down();

  std::uint32_t uar() const { return uar_; }
  /// Queues that are made from now on ring this page.
  void use_uar(std::uint32_t uar) { uar_ = uar; }
  std::uint32_t allocate_uar();
  std::uint32_t pd() const { return pd_; }
  DriverEq& command_eq() { return command_eq_; }
  DriverEq& async_eq() { return async_eq_; }
  DriverEq& completion_eq() { return completion_eq_; }
  static constexpr std::uint16_t kCommandVector = 0;
  static constexpr std::uint16_t kAsyncVector = 1;
  static constexpr std::uint16_t kCompletionVector = 2;

  // ---- events
  DriverEq create_eq(unsigned log_size, std::uint16_t vector, std::uint64_t event_mask);
  std::optional<DriverEvent> poll_eq(DriverEq& eq);
  void arm_eq(const DriverEq& eq);
  void update_eq(const DriverEq& eq);

  // ---- completion queues
  /// `eq`: where its events go; default: completion_eq().
  DriverCq create_cq(unsigned log_size, bool cqe128 = false, const DriverEq* eq = nullptr);
  std::optional<Completion> poll_cq(DriverCq& cq);
  void arm_cq(DriverCq& cq, bool solicited_only = false);

  // ---- memory
  /// `state_record`: see prm::CreateMkeyInput.
  DriverMr register_memory(std::uint64_t address, std::uint64_t length,
                           unsigned access = kAllAccess, std::uint64_t state_record = 0);
  /// Fresh memory, registered.
  DriverMr allocate_mr(std::uint64_t length, unsigned access = kAllAccess);

  // ---- queue pairs
  DriverSrq create_srq(unsigned log_size, unsigned log_stride = 6);
  void post_srq_receive(DriverSrq& srq, std::uint16_t index, std::span<const Sge> sges);
  DriverQp create_qp(const DriverCq& send_cq, const DriverCq& recv_cq,
                     const QpOptions& options = {});
  CommandReply to_init(const DriverQp& qp, const QpAccess& access = {}, std::uint32_t qkey = 0);
  CommandReply to_rtr(const DriverQp& qp, std::uint32_t remote_qpn, std::uint16_t dlid,
                      std::uint32_t rcv_psn, unsigned mtu = 5, const QpAccess& access = {},
                      const QpTimers& timers = {});
  CommandReply to_rts(const DriverQp& qp, std::uint32_t send_psn, const QpTimers& timers = {});
  CommandReply to_error(const DriverQp& qp);
  CommandReply to_reset(DriverQp& qp);
  prm::QpState query_state(const DriverQp& qp);

  void post_receive(DriverQp& qp, std::span<const Sge> sges);
  /// Writes the WQE and the doorbell record; returns the WQE's index.
  std::uint16_t queue_send(DriverQp& qp, const SendRequest& request);
  void ring_sq(const DriverQp& qp);
  std::uint16_t post_send(DriverQp& qp, const SendRequest& request);

  void pump() { pump_(); }
  /// Pumps until `done` or `limit` rounds have passed; true if done.
  bool pump_until(const std::function<bool()>& done, unsigned limit = 10000);

 private:
  /// A word of a doorbell record. The device may be looking.
  void store_record(std::uint64_t address, std::uint32_t value) {
    auto* const word = reinterpret_cast<std::uint32_t*>(memory_.bytes(address));
    __atomic_store_n(word, prm::Be32::swap(value), __ATOMIC_RELEASE);
  }
  std::vector<std::uint64_t> pages_of(std::uint64_t address, std::uint64_t bytes) const;
  CommandReply modify(prm::CommandOpcode opcode, const DriverQp& qp,
                      const std::function<void(std::uint8_t*)>& fill, std::uint32_t opt_mask = 0);
  std::size_t write_segments(std::uint8_t* wqe, const DriverQp& qp, const SendRequest& request);

  struct SlotMemory {
    std::uint64_t in_mailboxes = 0;
    std::uint64_t out_mailboxes = 0;
    unsigned in_blocks = 0;
    unsigned out_blocks = 0;
    std::size_t out_length = 0;
  };
  std::uint64_t chain(std::uint64_t& area, unsigned& capacity, unsigned blocks, std::uint8_t token);

  std::unique_ptr<Registers> own_registers_;
  Registers& registers_;
  GuestMemory memory_;
  std::function<void()> pump_;
  std::uint64_t command_queue_ = 0;
  bool signing_ = false;
  std::uint8_t token_ = 0;
  std::array<SlotMemory, 32> slots_{};
  std::uint32_t uar_ = 0;
  std::uint32_t pd_ = 0;
  DriverEq command_eq_;
  DriverEq async_eq_;
  DriverEq completion_eq_;
};

}  // namespace softhca::test
