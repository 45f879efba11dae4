// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "emulator/runtime/result.h"
#include "kernel-shim/host/device/command.h"
#include "kernel-shim/host/device/command_doorbell.h"
#include "kernel-shim/host/device/dma_arena.h"
#include "kernel-shim/host/device/pci_device.h"

namespace softhca::shim {

/// The driver's side of the command queue (PRM "Command Interface"). The daemon has one thread, so
/// commands run one at a time and completion is polled: slot 0 for everything, slot 31 for pages
/// asked for meanwhile.
class CommandQueue final : public CommandInterface {
 public:
  static constexpr std::size_t kMaxLength = 64 * 1024;  ///< Input or output, bytes.

  /// Waits until the device is ready, checks the interface revision, and hands it the queue.
  static runtime::Result<std::unique_ptr<CommandQueue>> open(PciDevice& device, DmaArena& arena);
  ~CommandQueue() override;

  CommandResult execute(std::span<const std::uint8_t> in, std::span<std::uint8_t> out) override;

  void announce() override { doorbell_.wait_here(); }

  void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }
  /// Called from time to time while a command does not end: the device may be waiting for pages.
  /// May call execute(), which then uses the page slot.
  void set_waiting_hook(std::function<void()> hook) { waiting_hook_ = std::move(hook); }
  /// False after a timeout or the loss of the device: every further command fails at once.
  bool alive() const { return alive_; }

 private:
  struct Mailboxes {
    DmaArena::Block block;
    std::uint64_t first(
        std::size_t length) const;  ///< Address of block 0, 0 if `length` fits inline.
  };
  struct Slot {
    unsigned index = 0;
    Mailboxes input;
    Mailboxes output;
  };

  CommandQueue(PciDevice& device, DmaArena& arena)
      : device_(device), arena_(arena), doorbell_(device) {}
  runtime::Result<runtime::Done> start();
  bool prepare(Slot& slot, unsigned index);
  std::uint8_t* entry(const Slot& slot) const;
  void fill(const Slot& slot, std::span<const std::uint8_t> in, std::size_t out_length);
  bool wait(const Slot& slot);
  CommandResult collect(const Slot& slot, std::span<std::uint8_t> out, std::uint16_t opcode);

  PciDevice& device_;
  DmaArena& arena_;
  CommandDoorbell doorbell_;
  DmaArena::Block queue_;
  unsigned log_stride_ = 6;
  Slot normal_;
  Slot pages_;
  unsigned depth_ = 0;  ///< Nesting of execute().
  std::uint8_t token_ = 0;
  std::chrono::milliseconds timeout_{10'000};
  std::function<void()> waiting_hook_;
  bool alive_ = true;
};

}  // namespace softhca::shim
