// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/fabric/end_port.h"

#include <algorithm>

namespace softhca::fabric {
namespace {

constexpr std::uint16_t kFullMember = 0x8000;

struct Rate {
  std::uint8_t width;
  std::uint16_t speed;
  std::uint8_t code;
};
// ibv_port_attr codes of width (1X 1, 4X 2) and speed.
constexpr Rate kRates[] = {
    {kWidth1x, 1, 2},     {kWidth1x, 2, 5},     {kWidth1x, 4, 3}, {kWidth1x, 0x10, 11},
    {kWidth1x, 0x20, 15}, {kWidth4x, 1, 3},     {kWidth4x, 2, 6}, {kWidth4x, 4, 7},
    {kWidth4x, 0x10, 12}, {kWidth4x, 0x20, 16},
};
// By code, in 0.5 Gbit/s; 0: no such code.
constexpr std::uint16_t kHalfGigabits[] = {0,   0,   5,  20,  60,  10,  40, 80,  120,
                                           160, 240, 28, 112, 224, 336, 50, 200, 400};

}  // namespace

std::vector<EndPort> end_ports(Subnet& subnet) {
  std::vector<EndPort> ports;
  const ib::PortAttributes& own = subnet.node().management().attributes;
  if (own.lid != 0) ports.push_back({&own, subnet.node().gid(), 0});
  subnet.for_each([&](Spoke& spoke) {
    const ib::PortAttributes& port = spoke.port.attributes();
    if (spoke.port.link().up && port.lid != 0) ports.push_back({&port, port.gids[0], spoke.number});
  });
  return ports;
}

bool owns_gid(const EndPort& port, const ib::Gid& gid) {
  if (gid == ib::Gid{}) return false;
  const auto& gids = port.attributes->gids;
  return gid == port.gid || std::find(gids.begin(), gids.end(), gid) != gids.end();
}

bool owns_lid(const EndPort& port, std::uint16_t lid) {
  return lid >> port.attributes->lmc == port.attributes->lid >> port.attributes->lmc;
}

bool in_partition(const EndPort& port, std::uint16_t pkey) {
  return std::any_of(port.attributes->pkeys.begin(), port.attributes->pkeys.end(),
                     [&](std::uint16_t entry) {
                       return (entry & ~kFullMember) != 0 && ((entry ^ pkey) & ~kFullMember) == 0;
                     });
}

std::uint16_t common_pkey(const EndPort& one, const EndPort& other) {
  for (const std::uint16_t mine : one.attributes->pkeys) {
    if ((mine & ~kFullMember) == 0) continue;
    for (const std::uint16_t its : other.attributes->pkeys) {
      if (((mine ^ its) & ~kFullMember) == 0 && ((mine | its) & kFullMember) != 0) return mine;
    }
  }
  return 0;
}

std::uint8_t rate_code(const ib::PortAttributes& port) {
  for (const Rate& rate : kRates) {
    if (rate.width == port.link_width_active && rate.speed == port.link_speed_active) {
      return rate.code;
    }
  }
  return 0;
}

std::uint32_t rate_of_code(std::uint64_t code) {
  return code < std::size(kHalfGigabits) ? kHalfGigabits[code] : 0;
}

}  // namespace softhca::fabric
