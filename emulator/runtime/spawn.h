// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <sys/types.h>

#include "emulator/runtime/result.h"

namespace softhca::runtime {

/// How to start a background process of our own program.
struct DaemonOptions {
  std::vector<std::string>
      arguments;           ///< Without argv[0], e.g. {"emulator", "--fabric", "default"}.
  std::string log_file;    ///< Receives stdout and stderr (appended); mode 0600.
  std::string executable;  ///< Empty: the running program (/proc/self/exe).
  std::chrono::milliseconds timeout{10000};  ///< For readiness.
};

/// Starts a daemon (new session, not a child of the caller, cwd `/`, no descriptors but its log,
/// environment without our preload and lease) and waits until it calls notify_ready(). If it calls
/// notify_failed(), dies or does not answer in time, the error says so, with the end of its log.
Result<Done> spawn_daemon(const DaemonOptions& options);

/// In the daemon: tells the process that started it that it is ready, or why it cannot be. Each may
/// be called in any process (no effect when nobody waits) and at most once has an effect.
/// notify_failed() does not exit.
void notify_ready();
void notify_failed(const std::string& reason);

/// The descriptor behind them, for a daemon that reports itself: "\n" means ready, any other text
/// is the reason of a failure, end of file means that it died. -1 if nobody waits. Ownership goes
/// to the caller.
int take_ready_fd();

/// Folder of the running program, e.g. `build/bin`.
std::string executable_folder();

}  // namespace softhca::runtime
