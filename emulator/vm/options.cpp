// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/vm/options.h"

namespace softhca::vm {

GuestPaths guest_paths(const std::string& fabric, const std::string& name) {
  GuestPaths paths;
  paths.folder = runtime::fabric_paths(fabric).folder + "/vms/" + name;
  const std::string prefix = paths.folder + "/";
  paths.lock = prefix + "lock";
  paths.agent = prefix + "agent.sock";
  paths.commands = prefix + "commands.sock";
  paths.qmp = prefix + "qmp.sock";
  paths.seed = prefix + "seed.tar";
  paths.log = prefix + "qemu.log";
  paths.console = prefix + "console.log";
  return paths;
}

std::string hca_host(const std::string& name, unsigned index) {
  return "vm-" + name + "-" + std::to_string(index);
}

}  // namespace softhca::vm
