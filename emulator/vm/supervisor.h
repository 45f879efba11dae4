// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "emulator/runtime/result.h"
#include "emulator/vm/options.h"
#include "emulator/vm/qemu_command.h"

namespace softhca::vm {

/// One run of a guest.
struct GuestRun {
  Options options;
  std::string accelerator;
  QemuProgram program;
  GuestImage image;
  Console console = Console::kFile;
  std::optional<std::string> command;  ///< Run it, then end the guest.
  bool announces = false;              ///< Says on stdout when the guest is up.
  std::string console_log;             ///< File for the console's text; empty: dropped at the end.
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
};

/// Attaches the HCAs, boots the guest and stays with it until it powers off, its command has ended,
/// the deadline (ETIMEDOUT), or a signal (EINTR) ends it. Then QEMU, HCAs and files are gone. The
/// result is the command's exit status, without one 0.
runtime::Result<int> run_guest(const GuestRun& run);

}  // namespace softhca::vm
