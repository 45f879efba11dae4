// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "emulator/runtime/paths.h"

namespace softhca::vm {

/// A file or folder of this machine that the guest gets.
struct CopiedPath {
  std::string path;
  std::string guest_path;  ///< Absolute.
};

/// What `softhca vm` was asked for.
struct Options {
  std::string fabric;
  std::string name = "guest";
  unsigned hcas = 1;
  bool mapped_uars = false;
  bool blue_flame = false;
  std::string system = "trixie";  ///< One of guest_systems().
  std::string accelerator = "auto";
  unsigned cpus = 2;
  unsigned memory_mib = 1536;
  std::vector<CopiedPath> copies;
  std::vector<std::string> forwards;  ///< "HOSTPORT:GUESTPORT", TCP on 127.0.0.1.
  std::vector<std::string> modules;   ///< Loaded at boot.
  std::string kernel_arguments;       ///< Appended to the guest's kernel command line.
  bool with_iommu = false;
};

/// Files of a running guest, in `<fabric's folder>/vms/<name>`. QEMU runs in that folder.
struct GuestPaths {
  std::string folder;
  std::string lock;      ///< Held (flock) by the guest's `softhca vm`.
  std::string agent;     ///< Port of the agent; QEMU listens.
  std::string commands;  ///< `softhca vm` listens, for commands (see command_client.h).
  std::string qmp;       ///< QEMU listens.
  std::string seed;      ///< The second drive (seed.h).
  std::string log;       ///< What QEMU said, unless the console is the terminal.
  std::string console;   ///< What the guest wrote to its console, unless that is the terminal.
};

/// Names only; nothing is touched.
GuestPaths guest_paths(const std::string& fabric, const std::string& name);

/// Name of a guest's HCA as host of the fabric: vm-NAME-0, ...
std::string hca_host(const std::string& name, unsigned index);

}  // namespace softhca::vm
