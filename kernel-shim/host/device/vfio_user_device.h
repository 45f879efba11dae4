// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <memory>
#include <string>

#include "emulator/runtime/result.h"
#include "kernel-shim/host/device/pci_device.h"

namespace softhca::shim {

/// Connects to the vfio-user server at `socket_path` and learns its regions.
runtime::Result<std::unique_ptr<PciDevice>> connect_vfio_user_device(
    const std::string& socket_path);

}  // namespace softhca::shim
