// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/cli/fabric_access.h"

#include <cerrno>
#include <cstdio>

#include <CLI/CLI.hpp>

#include "emulator/cli/commands.h"
#include "emulator/runtime/lock.h"
#include "emulator/runtime/paths.h"
#include "kernel-shim/host/device/vfio/pci_address.h"

namespace softhca::cli {

std::string complain_of_name(const std::string& name) {
  if (runtime::is_valid_name(name)) return {};
  return "a name has 1 to 64 letters, digits, '_', '.', '-' and does not begin with '.' or '-'";
}

std::string complain_of_pci_address(const std::string& text) {
  if (shim::is_pci_address(text)) return {};
  return "a PCI address is domain, bus, device and function, such as 0000:01:00.0 (lspci -D lists "
         "them)";
}

void add_fabric_option(CLI::App& app, std::string& fabric) {
  if (fabric.empty()) fabric = runtime::kDefaultFabric;
  app.add_option("-f,--fabric", fabric, "Name of the fabric")
      ->envname("SOFTHCA_FABRIC")
      ->capture_default_str()
      ->check(complain_of_name);
}

void fail(const std::string& message, int exit_code) {
  std::fprintf(stderr, "softhca: %s\n", message.c_str());
  throw CLI::RuntimeError(exit_code);
}

void fail(const runtime::Error& error) {
  fail(error.message, error.code == ENOENT ? kExitNotRunning : kExitFailed);
}

std::vector<std::string> running_fabrics() {
  std::vector<std::string> running;
  for (std::string& name : runtime::known_fabrics()) {
    if (runtime::FileLock::is_held(runtime::fabric_paths(name).lock)) {
      running.push_back(std::move(name));
    }
  }
  return running;
}

emulator::ControlClient connect_or_fail(const std::string& fabric) {
  auto client = emulator::ControlClient::connect(fabric);
  if (client) return std::move(*client);
  const int code = client.error().code;
  if (code != ENOENT && code != ECONNREFUSED) fail(client.error());
  std::string others;
  for (const std::string& name : running_fabrics()) {
    if (name != fabric) others += (others.empty() ? "" : ", ") + name;
  }
  fail("fabric '" + fabric + "' is not running" +
           (others.empty() ? "" : " (running: " + others + "; choose with --fabric)") +
           "; start it with `softhca run -- COMMAND` or `softhca up HOST`",
       kExitNotRunning);
}

}  // namespace softhca::cli
