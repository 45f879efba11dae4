// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

namespace CLI {
class App;
}

namespace softhca::cli {

/// Exit codes of `softhca` (`run` and `vm` pass their command's own code on instead).
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed =
    1;  ///< The request was understood and failed; the reason is on stderr.
inline constexpr int kExitUsage = 2;       ///< Wrong arguments.
inline constexpr int kExitNotRunning = 3;  ///< No such fabric or host runs.

/// Each adds its subcommand to the program. A subcommand's callback ends with `throw
/// CLI::RuntimeError(code)` when the exit code is not kExitOk.
void add_emulator(CLI::App& app);
void add_host(CLI::App& app);
void add_run(CLI::App& app);
void add_vm(CLI::App& app);
void add_up(CLI::App& app);
void add_down(CLI::App& app);
void add_status(CLI::App& app);
void add_capture(CLI::App& app);
void add_ctl(CLI::App& app);
void add_doctor(CLI::App& app);

}  // namespace softhca::cli
