// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "hw-model/ib/port.h"
#include "hw-model/memory/dma_space.h"
#include "hw-model/runtime/clock.h"
#include "hw-model/runtime/doorbell_hints.h"
#include "hw-model/runtime/interrupts.h"
#include "hw-model/runtime/sweep.h"

namespace softhca {

/// How one PCI function presents itself.
struct FunctionConfig {
  std::uint64_t node_guid = 0;
  std::string board_id = "SFT0000000001";
  unsigned num_msix_vectors = 64;
  /// UAR pages (index kFirstUar and up) are memory shared with the driver instead of trapped
  /// registers.
  bool mapped_uars = false;
  /// Drivers are offered BlueFlame: sensible where eight stores of a doorbell register cost no more
  /// than one.
  bool blue_flame = true;
};

/// How much one call of Function::step() may do before it must return, so that no guest starves
/// another.
struct StepBudget {
  std::uint32_t wqes = 64;
  std::uint64_t bytes = 1 << 20;
};

/// One PCI function of a ConnectX-5 (15b3:1019): configuration space, BAR0 (initialization segment,
/// command doorbell, MSI-X table and PBA, UARs), command queue, object tables, queues and
/// transport.
///
/// Deterministic, single-threaded: every input is a call, every output goes to the interfaces given
/// at construction. Nothing here blocks, sleeps or does I/O; all work a register write causes is
/// done by step().
class Function final : public ib::PortClient {
 public:
  static constexpr std::uint64_t kBar0Size = 32ULL << 20;
  static constexpr std::uint64_t kTimerPage = 0x1000;  ///< internal timer (core clock) page.
  static constexpr std::uint64_t kMsixTable = 0x2000;
  static constexpr std::uint64_t kMsixPba = 0x3000;
  static constexpr std::uint32_t kFirstUar = 16;  ///< UAR index i lies at BAR0 + i * 4096.
  static constexpr std::uint32_t kUarCount =
      static_cast<std::uint32_t>(kBar0Size / 4096) - kFirstUar;

  Function(FunctionConfig config, ib::Port& port, const Clock& clock, InterruptSink& interrupts);
  ~Function() override;

  DmaSpace& dma();

  /// PCI configuration space, 4096 bytes, little-endian; read-only fields stay so. A Device Control
  /// write with the FLR bit resets the function.
  void config_read(std::uint32_t offset, std::span<std::byte> to) const;
  void config_write(std::uint32_t offset, std::span<const std::byte> from);

  /// BAR0 accesses of 1, 2, 4 or 8 bytes (others read as ones, writes are ignored). Offsets are
  /// checked.
  void bar_read(std::uint64_t offset, std::span<std::byte> to) const;
  void bar_write(std::uint64_t offset, std::span<const std::byte> from);

  /// Memory that stands for UAR pages when config.mapped_uars: kUarCount * 4096 bytes; and the
  /// hints region. Either may be null. Owned by the runner, must outlive the function or be
  /// detached with null.
  void attach_mapped_uars(std::byte* base);
  void attach_doorbell_hints(DoorbellHints* hints);

  /// Takes doorbell hints and expired timers, then runs queued work within the budget. True if work
  /// is left.
  bool step(const StepBudget& budget);
  /// Keys that drivers have revoked or made usable by their state records (mkey_state.h): before
  /// anything else is done.
  void follow_mkey_states();
  /// Nothing is done between these two, no input taken. In between, drivers change states of keys
  /// without waiting.
  void begin_rest();
  void end_rest();
  /// A driver has rung by the hints region, or by the doorbell record that is watched for it.
  bool rung() const;
  /// What a client has written into the hints page may keep others of its host from ringing: puts
  /// right what the device says there, and hears whoever believed it. For now and then, and before
  /// the runner sleeps. True if there is work for step().
  bool repair_hints();
  /// Looks at doorbell records, for drivers that ring by plain stores to mapped UARs only: of at
  /// most so many QPs and CQs, where the last call ended. Work found is done by step().
  Sweep sweep_doorbells(std::uint32_t queues = Sweep::kAll);
  /// False: no queue is there, and nothing to sweep.
  bool has_doorbell_records() const;
  /// Earliest time step() has something to do although nothing else happens; kNever if none.
  Nanoseconds next_deadline() const;
  /// Host memory that had been `pending` may have arrived: parked operations try again in the next
  /// step().
  void memory_arrived();

  /// PCI reset / function level reset: back to power-on; DMA maps stay, they belong to the runner.
  void reset();
  /// Fatal internal error, as hardware shows it in the health buffer.
  void fail(std::uint8_t health_syndrome, const std::string& reason);
  /// True since a fatal error, until a reset; failure_reason() says which in words.
  bool failed() const;
  const std::string& failure_reason() const;

  // ib::PortClient
  void receive(ib::Packet& packet) override;
  ib::Answerer direct_receiver(const ib::Destination& there) override;
  void delivered() override;
  void port_ready() override;
  void port_event(ib::PortEvent event) override;
  bool owns_special_qp(std::uint32_t qp) const override;

  /// Human-readable state as JSON text, for `softhca status`: driver state, objects by kind, and
  /// for each QP number, type, state, peer, counters and why it is not moving.
  std::string status_json() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace softhca
