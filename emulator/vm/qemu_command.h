// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <string>
#include <vector>

#include "emulator/vm/guest_image.h"
#include "emulator/vm/options.h"
#include "emulator/vm/qemu_program.h"

namespace softhca::vm {

/// Where the guest's serial console goes.
enum class Console { kTerminal, kFile };

/// QEMU's command line for a guest. HCA i is device "hca<i>" behind the PCIe root port "port<i>";
/// there is at least one free root port more, for hot plug. Sockets are named relative to the
/// guest's folder where their names are too long for a socket address.
std::vector<std::string> qemu_command(const Options& options, const QemuProgram& program,
                                      const GuestImage& image, const std::string& accelerator,
                                      Console console);

/// A shell script that boots the same guest with QEMU alone.
std::string printed_command(const Options& options, const QemuProgram& program,
                            const GuestImage& image, const std::string& accelerator,
                            const std::string& seed);

}  // namespace softhca::vm
