// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/fabric/switch_node.h"

#include <algorithm>
#include <utility>

#include "hw-model/fabric/perf_agent.h"

namespace softhca::fabric {
namespace {

constexpr std::uint16_t kFullMember = 0x8000;
constexpr std::uint16_t kDefaultPkey = 0xffff;

/// Two P_Keys match if their base values do and one of them is a full member (IBA 10.9.3).
bool match(std::uint16_t one, std::uint16_t other) {
  return ((one ^ other) & ~kFullMember) == 0 && ((one | other) & kFullMember) != 0;
}

}  // namespace

SwitchPort::SwitchPort() {
  attributes.pkeys.assign(kPkeys, 0);
  attributes.pkeys[0] = kDefaultPkey;
}

bool SwitchPort::in_partition(std::uint16_t pkey) const {
  return std::any_of(attributes.pkeys.begin(), attributes.pkeys.end(), [&](std::uint16_t entry) {
    return (entry & ~kFullMember) != 0 && match(entry, pkey);
  });
}

SwitchNode::SwitchNode(std::uint64_t guid, Hooks hooks)
    : guid_(guid), hooks_(std::move(hooks)), ports_(kSmall + std::size_t{1}) {
  ib::PortAttributes& port = management().attributes;
  port.state = ib::PortState::active;
  port.phys_state = kPhysLinkUp;
  port.port_guid = guid;
}

void SwitchNode::grow_to(std::uint8_t port) {
  if (port > port_count()) ports_.resize(kBig + std::size_t{1});
}

ib::Gid SwitchNode::gid() const {
  ib::Gid gid{};
  prm::Field<0, 64>::set(gid.data(), management().attributes.subnet_prefix);
  prm::Field<64, 64>::set(gid.data(), guid_);
  return gid;
}

std::uint16_t SwitchNode::process_perf_mad(ib::MadMethod method, std::uint16_t attribute,
                                           std::uint8_t* data) {
  std::vector<PortCounters*> all;
  for (std::size_t i = 1; i < ports_.size(); ++i) all.push_back(&ports_[i].counters);
  return process_perf(
      method, attribute, data,
      [this](std::uint8_t port) { return port < ports_.size() ? &ports_[port].counters : nullptr; },
      all);
}

}  // namespace softhca::fabric
