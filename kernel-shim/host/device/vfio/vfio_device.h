// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <memory>
#include <string>

#include "emulator/runtime/result.h"
#include "kernel-shim/host/device/pci_device.h"

namespace softhca::shim {

/// The second door: a ConnectX that is bound to vfio-pci, at PCI `address` (is_pci_address). It is
/// reset, may master the bus, and reaches shared memory only.
runtime::Result<std::unique_ptr<PciDevice>> open_vfio_device(const std::string& address);

}  // namespace softhca::shim
