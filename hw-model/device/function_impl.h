// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "hw-model/device/blue_flame.h"
#include "hw-model/device/config_space.h"
#include "hw-model/device/function.h"
#include "hw-model/device/initialization_segment.h"
#include "hw-model/firmware/firmware.h"

namespace softhca {

/// The parts of a Function and the wiring between them.
struct Function::Impl {
  Impl(FunctionConfig config_in, ib::Port& port, const Clock& clock, InterruptSink& interrupts);

  std::uint32_t read_word(std::uint64_t offset) const;
  void write_word(std::uint64_t offset, std::uint32_t value);
  /// A store of 4 or 8 bytes at BAR `offset`, in a UAR page.
  void write_uar(std::uint64_t offset, std::span<const std::byte> from);
  void write_send_register(std::uint64_t offset, std::span<const std::byte> from);
  void ring_eq(std::uint32_t value, bool arm);
  bool rung() const;
  /// Nobody has rung, nothing is queued and nothing is due: a step would do nothing.
  bool idle() const;
  /// Function::step() where there may be something to do.
  [[gnu::noinline]] bool work(const StepBudget& budget);
  /// True if any hint was there.
  bool drain_hints();
  /// The device has failed: nobody looks at doorbells any more.
  void drop_hints();
  void update_doorbell_mode();
  /// DMA stops and goes on with the command register's bus master bit.
  void follow_bus_master();
  void memory_arrived();
  void reset();
  void fail(std::uint8_t syndrome, const std::string& reason);
  bool running() const {
    return firmware.state().phase == HcaPhase::initialized && !firmware.state().failed;
  }
  bool has_special_qp(std::uint32_t qp) const;

  FunctionConfig config;
  DmaSpace dma;
  const Clock& clock;
  ConfigSpace config_space;
  InitializationSegment iseg;
  Firmware firmware;
  std::vector<std::uint32_t> msix_table;  ///< As the driver wrote it; delivery is the runner's.
  std::byte* mapped_uars = nullptr;
  DoorbellHints* hints = nullptr;
  std::string failure_reason;
  BlueFlame blue_flame;
  /// First word of a doorbell that came as two stores, as CPUs without 64-bit stores make them.
  std::array<std::byte, 4> half_doorbell{};
};

}  // namespace softhca
