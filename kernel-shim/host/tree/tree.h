// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "emulator/runtime/result.h"
#include "kernel-shim/host/device/port_query.h"

namespace softhca::shim {

/// One counter file: "port_xmit_data", value.
struct CounterValue {
  std::string name;
  std::uint64_t value = 0;
};

/// What the tree says of the device.
struct TreeDevice {
  std::string host;
  std::string name = "mlx5_0";
  std::string board_id;
  std::string fw_version;  ///< "16.35.2000".
  std::uint32_t major = 0;
  std::uint32_t minor = 0;
  PortState port;
  std::vector<GidBytes> gids;
  std::vector<std::uint16_t> pkeys;
  std::vector<CounterValue> counters;
  std::vector<CounterValue> hw_counters;
};

/// The parts of /sys and /dev that applications look for, as files under `<host dir>/sys` and
/// `dev`: one ConnectX-5 in a PCI slot, its InfiniBand device with one port, and the uverbs
/// character device. Formats are the kernel's (core/sysfs.c, uverbs_main.c).
class DeviceTree {
 public:
  explicit DeviceTree(std::string host_dir) : root_(std::move(host_dir)) {}

  /// Writes everything anew; an old tree goes.
  runtime::Result<runtime::Done> build(const TreeDevice& device);
  /// Rewrites what may have changed of the port; each file changes at once.
  runtime::Result<runtime::Done> update_port(const TreeDevice& device);
  runtime::Result<runtime::Done> update_counters(const TreeDevice& device);
  void remove();

 private:
  std::string root_;
};

/// "fe80:0000:...": 8 groups of 4 hex digits.
std::string gid_text(const GidBytes& gid);
/// "0002:c903:00f0:0d00".
std::string guid_text(std::uint64_t guid);
/// "100 Gb/sec (4X EDR)".
std::string rate_text(std::uint8_t width, std::uint16_t speed);

}  // namespace softhca::shim
