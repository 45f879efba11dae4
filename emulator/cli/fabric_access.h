// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <string>
#include <vector>

#include "emulator/control/client.h"
#include "emulator/runtime/result.h"

namespace CLI {
class App;
}

namespace softhca::cli {

/// For CLI::Option::check(): empty if `name` can be the name of a fabric or host, else what a name
/// is.
std::string complain_of_name(const std::string& name);

/// For CLI::Option::check(): empty if `text` is a PCI address, else what one is.
std::string complain_of_pci_address(const std::string& text);

/// Adds `-f, --fabric NAME` ($SOFTHCA_FABRIC; "default").
void add_fabric_option(CLI::App& app, std::string& fabric);

/// Prints "softhca: <message>" to stderr and ends the subcommand with `exit_code`.
[[noreturn]] void fail(const std::string& message, int exit_code);
/// The same for `error`; its exit code is kExitNotRunning when nobody was there (ENOENT), else
/// kExitFailed.
[[noreturn]] void fail(const runtime::Error& error);

/// Names of the fabrics whose emulator runs.
std::vector<std::string> running_fabrics();

/// A connection to the fabric's emulator; without one, fails with what to do about it.
emulator::ControlClient connect_or_fail(const std::string& fabric);

}  // namespace softhca::cli
