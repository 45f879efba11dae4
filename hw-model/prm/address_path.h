// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include "hw-model/prm/field.h"

namespace softhca::prm {

/// Address path (ADS) of a QP context: where its packets go.
struct AddressPath {
  static constexpr std::size_t size = 0x2c;

  using fl = Field<0x0, 1>;               ///< Force loopback.
  using pkey_index = Field<0x10, 16>;     ///< Index into the P_Key table.
  using grh = Field<0x28, 1>;             ///< Packets carry a GRH.
  using mlid = Field<0x29, 7>;            ///< Low bits of the source LID, for LMC.
  using rlid = Field<0x30, 16>;           ///< Destination LID.
  using ack_timeout = Field<0x40, 5>;     ///< Local ACK timeout is 4.096 us << ack_timeout, 0 waits
                                          ///< for ever (IBA 9.7.6.1.3).
  using src_addr_index = Field<0x48, 8>;  ///< Source GID index.
  using stat_rate = Field<0x54, 4>;       ///< Static rate code.
  using hop_limit = Field<0x58, 8>;
  using tclass = Field<0x64, 8>;
  using flow_label = Field<0x6c, 20>;
  using rgid_rip = Block<0x10, 0x10>;  ///< Destination GID.
  using udp_sport = Field<0x110, 16>;
  using sl = Field<0x124, 4>;             ///< Service level.
  using vhca_port_num = Field<0x128, 8>;  ///< Port, 1 based.
  using rmac_47_32 = Field<0x130, 16>;
  using rmac_31_0 = Field<0x140, 32>;
};

}  // namespace softhca::prm
