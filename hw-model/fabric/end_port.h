// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <vector>

#include "hw-model/fabric/subnet.h"
#include "hw-model/ib/packet.h"

namespace softhca::fabric {

/// A port with a LID, as the subnet administrator sees it: a host's, or the switch's port 0.
struct EndPort {
  const ib::PortAttributes* attributes = nullptr;
  ib::Gid gid{};
  std::uint8_t switch_port = 0;  ///< 0: the switch itself.
};

/// All end ports of the subnet that are up and have a LID, the switch's first.
std::vector<EndPort> end_ports(Subnet& subnet);
bool owns_gid(const EndPort& port, const ib::Gid& gid);
bool owns_lid(const EndPort& port, std::uint16_t lid);
/// True if the port is in the partition, as full or limited member.
bool in_partition(const EndPort& port, std::uint16_t pkey);
/// A P_Key by which the two may talk (one of them a full member); 0: none.
std::uint16_t common_pkey(const EndPort& one, const EndPort& other);

/// Rate code of a link (IBA table 196), and the rates in units of 0.5 Gbit/s for comparison. An
/// unknown code is 0.
std::uint8_t rate_code(const ib::PortAttributes& port);
std::uint32_t rate_of_code(std::uint64_t code);

}  // namespace softhca::fabric
