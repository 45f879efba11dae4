// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <string>

#include "emulator/runtime/result.h"
#include "emulator/vm/guest_image.h"
#include "emulator/vm/qemu_program.h"

namespace softhca::vm {

/// "kvm" or "tcg" for `wanted` ("kvm", "tcg", "auto"). `auto` is kvm where a stock kernel really
/// starts under it within a few seconds: some machines have a /dev/kvm that runs no such guest.
/// That verdict is remembered in the cache until the machine's kernel changes.
std::string choose_accelerator(const std::string& wanted, const QemuProgram& program,
                               const GuestImage& image);

}  // namespace softhca::vm
