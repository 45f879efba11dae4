// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <string>

#include "emulator/runtime/result.h"
#include "emulator/runtime/unique_fd.h"

namespace softhca::shim {

/// A PCI function that the kernel's VFIO has handed to this process, with its IOMMU group in a
/// container of its own. Closed in reverse order.
struct VfioHandles {
  runtime::UniqueFd container;
  runtime::UniqueFd group;
  runtime::UniqueFd device;
};

/// Opens the function at PCI `address` (is_pci_address). The error says what the user has to do: no
/// such device, no ConnectX, another driver, no IOMMU, no permission, in use.
runtime::Result<VfioHandles> open_vfio(const std::string& address);

}  // namespace softhca::shim
