// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <chrono>
#include <string>

#include "emulator/runtime/result.h"

namespace softhca::vm {

struct CommandRun {
  std::string command;  ///< For `bash -c` in the guest.
  int signals = -1;     ///< signalfd whose signals go to the command; -1: none.
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
};

/// Runs a command in the guest whose command socket (GuestPaths::commands) `socket` is connected
/// to. Our stdin (unless it is a terminal), stdout and stderr are the command's. Its exit status,
/// 128 + n for signal n. ETIMEDOUT: the deadline came first. ECONNRESET: the guest went away.
runtime::Result<int> run_command(int socket, const CommandRun& run);

}  // namespace softhca::vm
