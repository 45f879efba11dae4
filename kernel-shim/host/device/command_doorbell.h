// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>

#include "hw-model/runtime/doorbell_hints.h"
#include "kernel-shim/host/device/pci_device.h"

namespace softhca::shim {

/// The command doorbell of a device: by its doorbell hints, where it has them, which takes no
/// message while the engine is awake; else by the register.
class CommandDoorbell {
 public:
  explicit CommandDoorbell(PciDevice& device);
  CommandDoorbell(const CommandDoorbell&) = delete;
  CommandDoorbell& operator=(const CommandDoorbell&) = delete;
  ~CommandDoorbell();

  /// The caller is going to ring, and to wait on this processor.
  void wait_here();
  /// Rings `slot`. False: the device is gone.
  bool ring(unsigned slot);
  /// The same by the register: applications have the page of the hints, too, and may have spoilt
  /// what it says of the engine.
  bool ring_register(unsigned slot);
  /// The command that was rung last is done, or given up.
  void waited();

 private:
  bool ring_hints(unsigned slot);

  PciDevice& device_;
  DoorbellHints* hints_ = nullptr;
};

}  // namespace softhca::shim
