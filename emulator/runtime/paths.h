// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "emulator/runtime/result.h"

namespace softhca::runtime {

inline constexpr std::string_view kDefaultFabric = "default";
inline constexpr std::string_view kDefaultHost = "host";

/// Fabric and host names become file names: 1 to 64 of [A-Za-z0-9_.-], first one a letter, digit or
/// '_'.
bool is_valid_name(std::string_view name);

/// Where the sockets, locks, logs and device trees of one user lie.
///
/// `$SOFTHCA_RUNTIME_DIR`, else `$XDG_RUNTIME_DIR/softhca`, else `/tmp/softhca-<uid>`; always
/// absolute.
std::string root_folder();

/// Files of one fabric (one emulator process), below `<root>/<fabric>`.
struct FabricPaths {
  std::string folder;
  std::string control_socket;  ///< SOCK_STREAM, one JSON object per line.
  std::string lock;            ///< Held (flock) by the running emulator.
  std::string log;
  std::string hosts;  ///< Folder of the hosts' folders.
};

/// Files of one virtual host, below `<root>/<fabric>/hosts/<host>`.
struct HostPaths {
  std::string folder;
  std::string device_socket;  ///< vfio-user server; made by the emulator at attach.
  std::string kernel_socket;  ///< SOCK_SEQPACKET, kernel-shim/protocol; made by the host daemon.
  std::string lock;           ///< Held (flock) by the running host daemon.
  std::string log;
  std::string sys;  ///< Fake /sys.
  std::string dev;  ///< Fake /dev.
};

/// Names only, nothing is touched. The names must be valid (is_valid_name).
FabricPaths fabric_paths(std::string_view fabric);
HostPaths host_paths(std::string_view fabric, std::string_view host);

/// Makes `folder` and what is missing above it, down from the root folder, with mode 0700, and
/// verifies that every folder from the root folder on is a real directory of the calling user that
/// nobody else may enter. EPERM with an explanation when it belongs to someone else or is open to
/// others.
Result<Done> make_private_folder(const std::string& folder);

/// make_private_folder() for the fabric's folders / for the host's folder (without sys and dev).
Result<FabricPaths> make_fabric_folder(std::string_view fabric);
Result<HostPaths> make_host_folder(std::string_view fabric, std::string_view host);

/// Names of the fabrics / hosts that have a folder; sorted. (Whether they run is another question.)
std::vector<std::string> known_fabrics();
std::vector<std::string> known_hosts(std::string_view fabric);

}  // namespace softhca::runtime
