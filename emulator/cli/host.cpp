// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "emulator/cli/commands.h"
#include "emulator/cli/fabric_access.h"
#include "emulator/runtime/logging.h"
#include "emulator/runtime/paths.h"
#include "emulator/runtime/spawn.h"
#include "kernel-shim/host/host.h"

namespace softhca::cli {
namespace {

void run_host(shim::HostOptions options) {
  runtime::set_up_logging("host " + options.host);
  const auto paths = runtime::make_host_folder(options.fabric, options.host);
  if (!paths) {
    runtime::notify_failed(paths.error().message);
    fail(paths.error());
  }
  options.host_dir = paths.value().folder;
  if (options.pci_address.empty()) {
    options.control_socket = runtime::fabric_paths(options.fabric).control_socket;
  }
  options.ready_fd = runtime::take_ready_fd();
  const int status = shim::host_main(options);
  if (status != 0) throw CLI::RuntimeError(status);
}

}  // namespace

void add_host(CLI::App& app) {
  auto options = std::make_shared<shim::HostOptions>();
  CLI::App* command = app.add_subcommand(
      "host", "Run a virtual host's daemon in the foreground (`run` and `up` start it as needed)");
  add_fabric_option(*command, options->fabric);
  command->add_option("-H,--host", options->host, "Name of the host")
      ->capture_default_str()
      ->check(complain_of_name);
  command
      ->add_option("--device", options->pci_address,
                   "PCI address of a ConnectX that is bound to vfio-pci, instead of the fabric's")
      ->check(complain_of_pci_address);
  command->add_flag("--persistent", options->persistent, "Stay although nobody uses the host");
  command->callback([options] { run_host(*options); });
}

}  // namespace softhca::cli
