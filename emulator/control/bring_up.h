// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <string>

#include "emulator/runtime/result.h"

namespace softhca::emulator {

/// Makes sure that the fabric's emulator runs: connects, or starts `softhca emulator --fabric F` as
/// a daemon. Safe against others doing the same and against an emulator that is just ending.
runtime::Result<runtime::Done> ensure_emulator(const std::string& fabric);

struct AttachOptions {
  bool mapped_uars = true;
  bool blue_flame = false;
  bool persistent = false;  ///< Keep the device when its client leaves (see `softhca up`).
  /// bring_up_host(): PCI address of the device that the host has instead of one of the emulator.
  std::string pci_address;
};

/// ensure_emulator(), then attaches `host`'s device (idempotent): device.sock exists afterwards.
runtime::Result<runtime::Done> attach_host(const std::string& fabric, const std::string& host,
                                           const AttachOptions& options);

/// attach_host(), then starts the host's daemon (`softhca host --fabric F --host H [--persistent]`)
/// unless its kernel socket answers. Afterwards kernel.sock accepts connections (unless the daemon
/// ends in between: a caller whose connection is refused or reset calls again).
runtime::Result<runtime::Done> bring_up_host(const std::string& fabric, const std::string& host,
                                             const AttachOptions& options);

}  // namespace softhca::emulator
