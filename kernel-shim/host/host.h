// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <string>

namespace softhca::shim {

/// How `softhca host` starts the daemon of one virtual host.
struct HostOptions {
  std::string fabric = "default";
  std::string host = "host";
  /// `<root>/<fabric>/hosts/<host>`: holds device.sock (made by the emulator); the daemon makes
  /// lock, kernel.sock, sys/ and dev/ there.
  std::string host_dir;
  /// The emulator's control socket, told to detach the device when the daemon ends; may be empty.
  std::string control_socket;
  /// PCI address of a device that is bound to vfio-pci, which the host has instead of one of the
  /// fabric's emulator; empty: device.sock.
  std::string pci_address;
  /// Stay although no lease and no context is left.
  bool persistent = false;
  /// With `persistent` unset: how long to wait for the first lease or context before ending.
  unsigned first_use_timeout_ms = 10000;
  /// Written one byte ('\n') and closed when kernel.sock answers; -1 for none. Closed without a
  /// byte if the daemon could not start.
  int ready_fd = -1;
};

/// Runs the daemon in this process until it ends by its own rules or by SIGTERM/SIGINT. Returns the
/// exit status: 0 after an orderly end, 1 when the device or the host directory could not be used
/// (the reason is logged), 2 when another daemon already serves this host.
int host_main(const HostOptions& options);

}  // namespace softhca::shim
