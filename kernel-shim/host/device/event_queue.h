// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "emulator/runtime/result.h"
#include "emulator/runtime/unique_fd.h"
#include "kernel-shim/host/device/command.h"
#include "kernel-shim/host/device/dma_arena.h"
#include "kernel-shim/host/device/pci_device.h"

namespace softhca::shim {

/// An event queue of the device with its interrupt vector, an eventfd.
class EventQueue {
 public:
  /// `eqe`: 64 bytes, prm::Eqe.
  using Handler = std::function<void(const std::uint8_t* eqe)>;

  struct Options {
    unsigned log_size = 8;
    std::uint16_t vector = 0;
    std::uint32_t uar = 0;
    std::uint64_t event_mask = 0;  ///< Bit per prm::EventType.
  };

  /// CREATE_EQ and connects the vector; not armed yet.
  static runtime::Result<std::unique_ptr<EventQueue>> create(PciDevice& device,
                                                             CommandInterface& commands,
                                                             DmaArena& arena,
                                                             const Options& options);
  ~EventQueue();
  EventQueue(const EventQueue&) = delete;
  EventQueue& operator=(const EventQueue&) = delete;

  int interrupt_fd() const { return interrupt_.get(); }
  std::uint8_t number() const { return number_; }

  /// Takes every entry that is there, then arms the queue for the next interrupt.
  void process(const Handler& handler);
  /// Takes entries without arming; true if there was any.
  bool poll(const Handler& handler);
  void arm();
  /// DESTROY_EQ; also done by the destructor.
  void destroy();

 private:
  EventQueue(PciDevice& device, CommandInterface& commands, DmaArena& arena, const Options& options)
      : device_(device), commands_(commands), arena_(arena), options_(options) {}
  const std::uint8_t* next_entry() const;
  void update(std::uint64_t register_offset);

  PciDevice& device_;
  CommandInterface& commands_;
  DmaArena& arena_;
  Options options_;
  DmaArena::Block buffer_;
  runtime::UniqueFd interrupt_;
  std::uint8_t number_ = 0;
  bool created_ = false;
  std::uint32_t consumer_ = 0;
};

}  // namespace softhca::shim
