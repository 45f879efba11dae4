// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <cstdio>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "emulator/cli/commands.h"
#include "emulator/cli/fabric_access.h"
#include "emulator/control/bring_up.h"
#include "emulator/runtime/paths.h"

namespace softhca::cli {
namespace {

struct UpOptions {
  std::string fabric;
  std::string host;
  bool device_only = false;
  bool mapped_uars = false;
  bool blue_flame = false;
};

void bring_device_up(const UpOptions& options) {
  emulator::AttachOptions attach;
  attach.mapped_uars = options.mapped_uars;
  attach.blue_flame = options.blue_flame;
  attach.persistent = true;
  if (auto done = emulator::attach_host(options.fabric, options.host, attach); !done) {
    fail(done.error());
  }
  std::printf("%s\n", runtime::host_paths(options.fabric, options.host).device_socket.c_str());
}

void bring_up(const UpOptions& options) {
  if (options.device_only) {
    bring_device_up(options);
    return;
  }
  emulator::AttachOptions attach;
  attach.persistent = true;
  if (auto done = emulator::bring_up_host(options.fabric, options.host, attach); !done) {
    fail(done.error());
  }
  std::printf(
      "host %s is up in fabric %s; end it with: softhca down%s %s\n", options.host.c_str(),
      options.fabric.c_str(),
      options.fabric == runtime::kDefaultFabric ? "" : (" --fabric " + options.fabric).c_str(),
      options.host.c_str());
}

}  // namespace

void add_up(CLI::App& app) {
  auto options = std::make_shared<UpOptions>();
  CLI::App* command =
      app.add_subcommand("up", "Start a virtual host that stays until `softhca down`");
  add_fabric_option(*command, options->fabric);
  command->add_option("host", options->host, "Name of the host")
      ->required()
      ->check(complain_of_name);
  CLI::Option* device_only =
      command->add_flag("--device-only", options->device_only,
                        "Only the device, for a VM: prints the socket for QEMU's vfio-user-pci");
  command
      ->add_flag("--mapped-uars", options->mapped_uars,
                 "With --device-only: doorbell pages are shared memory that the engine polls")
      ->needs(device_only);
  command
      ->add_flag("--blue-flame", options->blue_flame,
                 "With --device-only: offer the driver doorbells that carry a WQE")
      ->needs(device_only);
  command->callback([options] { bring_up(*options); });
}

}  // namespace softhca::cli
