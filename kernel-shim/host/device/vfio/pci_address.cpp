// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/host/device/vfio/pci_address.h"

#include <algorithm>

namespace softhca::shim {
namespace {

/// `x`: a hexadecimal digit as sysfs writes it, `7`: an octal one; others stand for themselves.
constexpr std::string_view kForm = "xxxx:xx:xx.7";

bool fits(char form, char character) {
  if (form == 'x') {
    return (character >= '0' && character <= '9') || (character >= 'a' && character <= 'f');
  }
  return form == '7' ? character >= '0' && character <= '7' : character == form;
}

}  // namespace

bool is_pci_address(std::string_view text) {
  return text.size() == kForm.size() && std::equal(kForm.begin(), kForm.end(), text.begin(), fits);
}

std::string host_of_device(std::string_view address) {
  std::string name = "pci-" + std::string(address);
  std::replace(name.begin(), name.end(), ':', '-');
  return name;
}

}  // namespace softhca::shim
