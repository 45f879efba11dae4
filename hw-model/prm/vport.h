// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include "hw-model/prm/field.h"

namespace softhca::prm {

// HCA virtual port (InfiniBand).

/// HCA vport context (QUERY/MODIFY_HCA_VPORT_CONTEXT).
struct HcaVportContext {
  static constexpr std::size_t size = 0x200;

  using field_select =
      Field<0x0, 32>;  ///< Bit 0 port GUID, bit 1 node GUID, bit 2 vport state policy.
  using sm_virt_aware = Field<0x100, 1>;
  using has_smi = Field<0x101, 1>;  ///< QP0 may be used.
  using has_raw = Field<0x102, 1>;
  using grh_required = Field<0x103, 1>;         ///< Packets without GRH are refused.
  using port_physical_state = Field<0x110, 4>;  ///< PortInfo.PortPhysicalState (IBA 14.2.5.6).
  using vport_state_policy = Field<0x114, 4>;
  using port_state = Field<0x118, 4>;   ///< PortInfo.PortState.
  using vport_state = Field<0x11c, 4>;  ///< PortInfo.PortState of the vport.
  using system_image_guid = Field<0x140, 64>;
  using port_guid = Field<0x180, 64>;
  using node_guid = Field<0x1c0, 64>;
  using cap_mask1 = Field<0x200, 32>;  ///< PortInfo.CapabilityMask.
  using cap_mask1_field_select =
      Field<0x220, 32>;  ///< Bits of cap_mask1 that may be or are to be changed.
  using cap_mask2 = Field<0x240, 32>;
  using cap_mask2_field_select = Field<0x260, 32>;
  using lid = Field<0x300, 16>;
  using init_type_reply = Field<0x314, 4>;
  using lmc = Field<0x318, 3>;  ///< LID mask control.
  using subnet_timeout = Field<0x31b, 5>;
  using sm_lid = Field<0x320, 16>;
  using sm_sl = Field<0x330, 4>;
  using qkey_violation_counter = Field<0x340, 16>;
  using pkey_violation_counter = Field<0x350, 16>;
};

}  // namespace softhca::prm
