// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/fabric/subnet.h"

#include <algorithm>
#include <utility>

namespace softhca::fabric {

Subnet::Subnet(const Clock& clock, std::uint64_t switch_guid)
    : clock_(clock),
      node_(switch_guid, {.link_request = [this](std::uint8_t port, LinkRequest what) {
              request(port, false, what);
            }}) {}

Spoke* Subnet::add(const HostConfig& config) {
  auto free = std::find(spokes_.begin(), spokes_.end(), nullptr);
  if (free == spokes_.end()) {
    if (spokes_.size() == SwitchNode::kBig) return nullptr;
    free = spokes_.emplace(spokes_.end());
  }
  const auto number = static_cast<std::uint8_t>(free - spokes_.begin() + 1);
  node_.grow_to(number);
  *free =
      std::make_unique<Spoke>(config, clock_, packets_, short_way_, step_request_, number,
                              [this, number](LinkRequest what) { request(number, true, what); });
  return free->get();
}

void Subnet::remove(Spoke& spoke) {
  set_cable(spoke, false);
  spokes_[spoke.number - 1U].reset();
}

Spoke* Subnet::find(std::string_view name) {
  for (auto& spoke : spokes_) {
    if (spoke && spoke->port.name() == name) return spoke.get();
  }
  return nullptr;
}

Spoke* Subnet::find_by_guid(std::uint64_t port_guid) {
  for (auto& spoke : spokes_) {
    if (spoke && spoke->port.attributes().port_guid == port_guid) return spoke.get();
  }
  return nullptr;
}

Spoke* Subnet::find_by_lid(std::uint16_t lid) {
  for (auto& spoke : spokes_) {
    if (spoke && spoke->port.owns_lid(lid)) return spoke.get();
  }
  return nullptr;
}

void Subnet::set_cable(Spoke& spoke, bool plugged) {
  spoke.cable = plugged;
  settle_link(spoke);
}

void Subnet::request(std::uint8_t number, bool by_host, LinkRequest request) {
  Spoke* spoke = at_port(number);
  const bool disable = request == LinkRequest::disable;
  SwitchPort& near = node_.port(number);
  if (spoke == nullptr) {
    near.attributes.phys_state = disable ? kPhysDisabled : kPhysPolling;
    return;
  }
  (by_host ? spoke->host_disabled : spoke->switch_disabled) = disable;
  if (!disable && spoke->port.link().up) spoke->bounce = true;
  spoke->link_change_at = clock_.now() + kLinkDelay;
}

std::size_t Subnet::change_links(Nanoseconds now) {
  std::size_t changed = 0;
  for (auto& spoke : spokes_) {
    if (!spoke || spoke->link_change_at > now) continue;
    spoke->link_change_at = kNever;
    ++changed;
    if (std::exchange(spoke->bounce, false)) set_link(*spoke, false);
    settle_link(*spoke);
  }
  return changed;
}

Nanoseconds Subnet::next_link_change() const {
  Nanoseconds earliest = kNever;
  for (const auto& spoke : spokes_) {
    if (spoke) earliest = std::min(earliest, spoke->link_change_at);
  }
  return earliest;
}

void Subnet::settle_link(Spoke& spoke) {
  set_link(spoke, spoke.cable && !spoke.host_disabled && !spoke.switch_disabled);
  if (spoke.port.link().up) return;
  spoke.port.agent().set_disabled(spoke.host_disabled);
  switch_port(spoke).attributes.phys_state = spoke.switch_disabled ? kPhysDisabled : kPhysPolling;
}

void Subnet::set_link(Spoke& spoke, bool up) {
  if (spoke.port.link().up == up) return;
  SwitchPort& near = switch_port(spoke);
  if (up) {
    negotiate(near.stored, spoke.port.agent().stored(), near.attributes);
    spoke.port.agent().train(near.stored);
  } else {
    ++near.counters.link_downed;
  }
  spoke.port.set_link(up);
  near.attributes.state = up ? ib::PortState::init : ib::PortState::down;
  near.attributes.phys_state = up ? kPhysLinkUp : kPhysPolling;
  node_.note_port_change();
  if (on_link_) on_link_(spoke, up);
}

}  // namespace softhca::fabric
