// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "hw-model/firmware/command.h"
#include "hw-model/firmware/command_queue.h"
#include "hw-model/firmware/firmware_state.h"

namespace softhca {

/// The firmware of one function: the command queue, and the interpreter that checks each command
/// against the command table (known, allowed in this phase, long enough) and calls its handler.
class Firmware final : public CommandExecutor {
 public:
  /// `fatal`: called when the device cannot go on (health syndrome and reason follow from the
  /// caller).
  Firmware(FirmwareConfig config, DmaSpace& dma, ib::Port& port, const Clock& clock,
           InterruptSink& interrupts, std::function<void()> fatal);

  CommandQueue& queue() { return queue_; }
  const CommandQueue& queue() const { return queue_; }
  FirmwareState& state() { return state_; }
  const FirmwareState& state() const { return state_; }

  void reset();

  // CommandExecutor
  void execute(std::span<const std::uint8_t> in, std::span<std::uint8_t> out) override;
  bool completion_by_event() const override;
  void commands_completed(std::uint32_t vector) override;
  void command_queue_lost() override;

 private:
  CommandResult run(const Command& command);

  FirmwareState state_;
  CommandQueue queue_;
  std::function<void()> fatal_;
};

}  // namespace softhca
