// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <string>
#include <vector>

#include "emulator/runtime/result.h"

namespace softhca::vm {

/// A QEMU that has `-device vfio-user-pci` (10.1 or later).
struct QemuProgram {
  std::vector<std::string> command;      ///< How to start it: first words of a command line.
  std::vector<std::string> environment;  ///< "NAME=value", beside the caller's.
};

/// The machine's own `$SOFTHCA_QEMU` if that is set; else Debian's, unpacked (not installed) in the
/// cache and started through its own dynamic linker: no root, nothing of the machine is changed.
runtime::Result<QemuProgram> qemu_program();

}  // namespace softhca::vm
