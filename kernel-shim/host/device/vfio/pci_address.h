// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <string>
#include <string_view>

namespace softhca::shim {

/// True for a PCI function's address as sysfs writes it: domain, bus, device and function, such as
/// "0000:01:00.0".
bool is_pci_address(std::string_view text);

/// Name of the virtual host behind that function: "pci-0000-01-00.0".
std::string host_of_device(std::string_view address);

}  // namespace softhca::shim
