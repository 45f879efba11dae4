// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kernel-shim/host/device/command.h"

namespace softhca::shim {

/// State of the port as the device's vport context and port registers say (struct ib_port_attr).
struct PortState {
  std::uint64_t node_guid = 0;
  std::uint64_t system_image_guid = 0;
  std::uint64_t port_guid = 0;
  std::uint32_t capability_mask = 0;
  std::uint16_t capability_mask2 = 0;
  std::uint16_t lid = 0;
  std::uint8_t lmc = 0;
  std::uint16_t sm_lid = 0;
  std::uint8_t sm_sl = 0;
  std::uint8_t state = 1;       ///< PortInfo.PortState: 1 down .. 4 active.
  std::uint8_t phys_state = 2;  ///< PortInfo.PortPhysicalState.
  std::uint8_t max_mtu = 5;     ///< 1..5: 256..4096.
  std::uint8_t active_mtu = 5;
  std::uint8_t max_vls = 1;  ///< PortInfo.VLCap code: 1 VL0, 2 VL0-1, 3 VL0-3, 4 VL0-7, 5 VL0-14.
  std::uint8_t active_width = 2;    ///< 1: 1X, 2: 4X, 4: 8X, 8: 12X, 16: 2X.
  std::uint16_t active_speed = 32;  ///< 1 SDR, 2 DDR, 4 QDR, 8 FDR10, 16 FDR, 32 EDR, 64 HDR.
  std::uint8_t subnet_timeout = 0;
  std::uint8_t init_type_reply = 0;
  std::uint16_t bad_pkey_counter = 0;
  std::uint16_t qkey_violation_counter = 0;
};

using GidBytes = std::array<std::uint8_t, 16>;

/// 0 or an errno. `port` is 1 based.
int query_port_state(CommandInterface& commands, std::uint8_t port, PortState& state);
/// The whole table, `count` entries.
int query_gids(CommandInterface& commands, std::uint8_t port, std::uint32_t count,
               std::vector<GidBytes>& gids);
int query_pkeys(CommandInterface& commands, std::uint8_t port, std::uint32_t count,
                std::vector<std::uint16_t>& pkeys);

}  // namespace softhca::shim
