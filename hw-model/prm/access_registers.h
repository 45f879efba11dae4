// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include "hw-model/prm/field.h"

namespace softhca::prm {

// Registers behind ACCESS_REG (PRM "Access Registers").

/// AccessRegisterInput::register_id.
enum class RegisterId : std::uint16_t {
  pcap = 0x5001,
  pmtu = 0x5003,
  ptys = 0x5004,
  pvlc = 0x500f,
  node_description = 0x6001,
  host_endianness = 0x7004,
  dtor = 0xc00e,
};

/// PTYS: port type and speed.
struct PtysRegister {
  static constexpr std::size_t size = 0x40;

  using local_port = Field<0x8, 8>;
  using proto_mask = Field<0x1d, 3>;  ///< Bit 0 InfiniBand, bit 2 Ethernet.
  using ib_link_width_capability = Field<0x80, 16>;
  using ib_proto_capability = Field<0x90, 16>;
  using ib_link_width_admin = Field<0xe0, 16>;
  using ib_proto_admin = Field<0xf0, 16>;
  using ib_link_width_oper = Field<0x140, 16>;  ///< Bit 0 1X, 1 2X, 2 4X.
  using ib_proto_oper =
      Field<0x150, 16>;  ///< Bit 0 SDR, 1 DDR, 2 QDR, 3 FDR10, 4 FDR, 5 EDR, 6 HDR.
};

/// PMTU: port MTU in bytes.
struct PmtuRegister {
  static constexpr std::size_t size = 0x10;

  using local_port = Field<0x8, 8>;
  using max_mtu = Field<0x20, 16>;
  using admin_mtu = Field<0x40, 16>;
  using oper_mtu = Field<0x60, 16>;
};

/// PVLC: virtual lanes.
struct PvlcRegister {
  static constexpr std::size_t size = 0x10;

  using local_port = Field<0x8, 8>;
  using vl_hw_cap = Field<0x3c, 4>;  ///< 1, 2, 4, 8 or 15 data VLs.
  using vl_admin = Field<0x5c, 4>;
  using vl_operational = Field<0x7c, 4>;
};

/// PCAP: port capability mask.
struct PcapRegister {
  static constexpr std::size_t size = 0x14;

  using local_port = Field<0x8, 8>;
  using port_capability_mask = Block<0x4, 0x10>;  ///< Four words; the InfiniBand mask is the first.
};

/// NODE_DESCRIPTION: NodeDescription text (IBA 14.2.5.2).
struct NodeDescriptionRegister {
  static constexpr std::size_t size = 0x40;

  using text = Block<0x0, 0x40>;
};

/// HOST_ENDIANNESS: order of scatter-to-CQE and similar words that the host wants.
struct HostEndiannessRegister {
  static constexpr std::size_t size = 0x10;

  using he = Field<0x0, 1>;  ///< 1: big-endian host.
};

/// One timeout of DTOR.
struct DefaultTimeout {
  static constexpr std::size_t size = 0x4;

  using to_multiplier = Field<0x0, 3>;  ///< 0: milliseconds, 1 seconds, 2 minutes, 3 hours.
  using to_value = Field<0xc, 20>;
};

/// DTOR: default timeouts, each a DefaultTimeout; 0 leaves it to the driver.
struct DtorRegister {
  static constexpr std::size_t size = 0x40;

  using pcie_toggle_to = Block<0x4, 0x4>;
  using health_poll_to = Block<0x14, 0x4>;
  using full_crdump_to = Block<0x18, 0x4>;
  using fw_reset_to = Block<0x1c, 0x4>;
  using flush_on_err_to = Block<0x20, 0x4>;
  using pci_sync_update_to = Block<0x24, 0x4>;
  using tear_down_to = Block<0x28, 0x4>;
  using fsm_reactivate_to = Block<0x2c, 0x4>;
  using reclaim_pages_to = Block<0x30, 0x4>;
  using reclaim_vfs_pages_to = Block<0x34, 0x4>;
};

}  // namespace softhca::prm
