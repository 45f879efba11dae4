// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/fabric/fabric.h"

#include <algorithm>
#include <map>

#include "hw-model/fabric/hca_port.h"
#include "hw-model/fabric/lid_routes.h"
#include "hw-model/ib/opcodes.h"

namespace softhca::fabric {

/// Where the built-in subnet manager lives: port 0 of the switch.
constexpr std::uint16_t kSwitchLid = 1;
constexpr std::size_t kMaxSwitchPorts = 254;

/// The switch port at the other end of a host's link, and the host.
struct Spoke {
  explicit Spoke(const HostConfig& config) : port(config) {}
  HcaPort port;
  PortCounters switch_counters;
  std::uint16_t routed_lid = 0;  ///< What the switch's routes say of the port.
  std::uint8_t routed_lmc = 0;
};

struct Fabric::Impl {
  const Clock& clock;
  std::vector<std::unique_ptr<Spoke>>
      spokes;  ///< By switch port number - 1; null: nothing plugged in.
  LidRoutes routes;
  std::map<std::uint64_t, std::uint16_t> lids_by_guid;  ///< What each port GUID last had.
  std::size_t next_first = 0;                           ///< Whose turn it is to be served first.

  explicit Impl(const Clock& the_clock) : clock(the_clock) {}

  template <typename Visit>
  void for_each(Visit&& visit) {
    for (auto& spoke : spokes) {
      if (spoke) visit(*spoke);
    }
  }
  Spoke* find(std::string_view name) {
    for (auto& spoke : spokes) {
      if (spoke && spoke->port.name() == name) return spoke.get();
    }
    return nullptr;
  }
  Spoke* at(std::size_t switch_port) {
    return switch_port >= 1 && switch_port <= spokes.size() ? spokes[switch_port - 1].get()
                                                            : nullptr;
  }

  std::size_t free_switch_port();
  std::uint16_t choose_lid(std::uint64_t guid);
  void bring_up(Spoke& spoke);
  void forward(Spoke& from, ib::PacketPtr packet);
  void forward_multicast(Spoke& from, const ib::Packet& packet);
  void enqueue(Spoke& to, ib::PacketPtr packet);
  Spoke* route(std::uint16_t dlid) { return at(routes.port(dlid)); }
  bool may_forward(const ib::Packet& packet);
  std::size_t carry_from(Spoke& spoke, Nanoseconds now, std::size_t max_packets);
  std::size_t carry_to(Spoke& spoke, Nanoseconds now, std::size_t max_packets);
  void set_link(Spoke& spoke, bool up);
  void follow_lid(Spoke& spoke, std::uint8_t switch_port);
  Nanoseconds next_deadline(const Spoke& spoke);
};

std::size_t Fabric::Impl::free_switch_port() {
  for (std::size_t i = 0; i < spokes.size(); ++i) {
    if (!spokes[i]) return i + 1;
  }
  if (spokes.size() == kMaxSwitchPorts) return 0;
  spokes.emplace_back();
  return spokes.size();
}

std::uint16_t Fabric::Impl::choose_lid(std::uint64_t guid) {
  const auto remembered = lids_by_guid.find(guid);
  if (remembered != lids_by_guid.end() && routes.port(remembered->second) == 0) {
    return remembered->second;
  }
  for (std::uint16_t lid = kSwitchLid + 1; lid < ib::kMulticastLidFirst; ++lid) {
    if (routes.port(lid) == 0) return lid;
  }
  return 0;
}

// What a subnet manager does after a link came up, without the SMPs: INIT to ARMED to ACTIVE.
void Fabric::Impl::bring_up(Spoke& spoke) {
  spoke.port.agent().assign_lid(lids_by_guid[spoke.port.attributes().port_guid], kSwitchLid);
  spoke.port.agent().set_state(ib::PortState::armed);
  spoke.port.agent().set_state(ib::PortState::active);
}

void Fabric::Impl::set_link(Spoke& spoke, bool up) {
  if (spoke.port.link().up == up) return;
  spoke.port.set_link(up);
  if (up) {
    bring_up(spoke);
  } else {
    ++spoke.switch_counters.link_downed;
  }
}

// An external subnet manager may have moved the port to another LID.
void Fabric::Impl::follow_lid(Spoke& spoke, std::uint8_t switch_port) {
  const ib::PortAttributes& port = spoke.port.attributes();
  if (spoke.routed_lid == port.lid && spoke.routed_lmc == port.lmc) return;
  spoke.routed_lid = port.lid;
  spoke.routed_lmc = port.lmc;
  routes.forget_port(switch_port);
  const std::uint32_t count = 1U << port.lmc;
  const std::uint32_t first = port.lid & ~(count - 1);
  for (std::uint32_t lid = first; lid < first + count; ++lid) {
    // A port that was given (or took) a LID of another, or of the switch, does not get its packets.
    if (lid > kSwitchLid && routes.port(static_cast<std::uint16_t>(lid)) == 0) {
      routes.set(static_cast<std::uint16_t>(lid), switch_port);
    }
  }
  if (routes.port(port.lid) == switch_port) {
    lids_by_guid[port.port_guid] = port.lid;
  } else {
    spoke.routed_lid = 0;  // Looked at again: its owner may give it up.
  }
}

void Fabric::Impl::enqueue(Spoke& to, ib::PacketPtr packet) {
  const bool accepted =
      to.port.link().up && to.port.link().channel(Direction::to_host).push(std::move(packet));
  if (!accepted) ++to.switch_counters.xmit_discards;
}

void Fabric::Impl::forward(Spoke& from, ib::PacketPtr packet) {
  if (ib::is_multicast_lid(packet->path.dlid)) {
    forward_multicast(from, *packet);
    return;
  }
  Spoke* to = route(packet->path.dlid);
  if (to == nullptr || to == &from) {
    ++from.switch_counters.rcv_switch_relay_errors;
    return;
  }
  enqueue(*to, std::move(packet));
}

void Fabric::Impl::forward_multicast(Spoke& from, const ib::Packet& packet) {
  if (!packet.path.has_grh) {
    ++from.switch_counters.rcv_switch_relay_errors;
    return;
  }
  for_each([&](Spoke& to) {
    if (&to != &from && to.port.joined(packet.path.grh.dgid)) {
      enqueue(to, std::make_unique<ib::Packet>(packet));
    }
  });
}

// A packet waits in front of its first link until there is room in front of the second.
bool Fabric::Impl::may_forward(const ib::Packet& packet) {
  if (ib::is_multicast_lid(packet.path.dlid)) return true;
  const Spoke* to = route(packet.path.dlid);
  return to == nullptr || !to->port.link().up ||
         to->port.link().channel(Direction::to_host).ready();
}

std::size_t Fabric::Impl::carry_from(Spoke& spoke, Nanoseconds now, std::size_t max_packets) {
  return spoke.port.link().advance(
      Direction::from_host, now, max_packets, spoke.port.counters(), spoke.switch_counters,
      [this](const ib::Packet& packet) { return may_forward(packet); },
      [this, &spoke](ib::PacketPtr packet) { forward(spoke, std::move(packet)); });
}

std::size_t Fabric::Impl::carry_to(Spoke& spoke, Nanoseconds now, std::size_t max_packets) {
  return spoke.port.link().advance(
      Direction::to_host, now, max_packets, spoke.switch_counters, spoke.port.counters(),
      [](const ib::Packet&) { return true; },
      [&spoke](ib::PacketPtr packet) { spoke.port.receive(std::move(packet)); });
}

Fabric::Fabric(const Clock& clock) : impl_(std::make_unique<Impl>(clock)) {}
Fabric::~Fabric() = default;

ib::Port* Fabric::attach(const HostConfig& config) {
  const std::uint64_t guid = config.port_guid != 0 ? config.port_guid : config.node_guid;
  bool taken = config.name.empty() || guid == 0 || impl_->find(config.name) != nullptr;
  impl_->for_each([&](Spoke& spoke) { taken |= spoke.port.attributes().port_guid == guid; });
  if (taken) return nullptr;
  const std::uint16_t lid = impl_->choose_lid(guid);
  const std::size_t switch_port = lid == 0 ? 0 : impl_->free_switch_port();
  if (switch_port == 0) return nullptr;

  auto& spoke = impl_->spokes[switch_port - 1];
  spoke = std::make_unique<Spoke>(config);
  impl_->lids_by_guid[guid] = lid;
  impl_->set_link(*spoke, true);
  impl_->follow_lid(*spoke, static_cast<std::uint8_t>(switch_port));
  return &spoke->port;
}

bool Fabric::connect(std::string_view name, ib::PortClient* client) {
  Spoke* spoke = impl_->find(name);
  if (spoke == nullptr) return false;
  spoke->port.connect(client);
  return true;
}

bool Fabric::detach(std::string_view name) {
  Spoke* spoke = impl_->find(name);
  if (spoke == nullptr) return false;
  const auto at = std::find_if(impl_->spokes.begin(), impl_->spokes.end(),
                               [&](const auto& entry) { return entry.get() == spoke; });
  impl_->routes.forget_port(static_cast<std::uint8_t>(at - impl_->spokes.begin() + 1));
  at->reset();
  return true;
}

ib::Port* Fabric::find(std::string_view name) {
  Spoke* spoke = impl_->find(name);
  return spoke != nullptr ? &spoke->port : nullptr;
}

bool Fabric::set_link(std::string_view name, bool up) {
  Spoke* spoke = impl_->find(name);
  if (spoke == nullptr) return false;
  impl_->set_link(*spoke, up);
  return true;
}

bool Fabric::configure_link(std::string_view name, const LinkConfig& config) {
  Spoke* spoke = impl_->find(name);
  if (spoke == nullptr) return false;
  spoke->port.link().config = config;
  return true;
}

bool Fabric::set_fault(std::string_view name, FaultHook hook) {
  Spoke* spoke = impl_->find(name);
  if (spoke == nullptr) return false;
  spoke->port.link().fault = std::move(hook);
  return true;
}

bool Fabric::add_observer(std::string_view name, LinkObserver& observer) {
  bool found = name.empty();
  impl_->for_each([&](Spoke& spoke) {
    if (!name.empty() && spoke.port.name() != name) return;
    found = true;
    auto& observers = spoke.port.link().observers;
    if (std::find(observers.begin(), observers.end(), &observer) == observers.end()) {
      observers.push_back(&observer);
    }
  });
  return found;
}

void Fabric::remove_observer(LinkObserver& observer) {
  impl_->for_each([&](Spoke& spoke) { std::erase(spoke.port.link().observers, &observer); });
}

bool Fabric::step(const FabricBudget& budget) {
  const Nanoseconds now = impl_->clock.now();
  const std::size_t count = impl_->spokes.size();
  std::size_t moved = 0;
  for (std::size_t i = 0; i < count; ++i) {
    Spoke* spoke = impl_->spokes[i].get();
    if (spoke == nullptr) continue;
    if (spoke->port.take_retrain_request() && spoke->port.link().up) {
      impl_->set_link(*spoke, false);
      impl_->set_link(*spoke, true);
    }
    impl_->follow_lid(*spoke, static_cast<std::uint8_t>(i + 1));
    moved += spoke->port.notify();
  }
  // Who is first changes, so that a full queue is not always refilled by the same host.
  if (count != 0) impl_->next_first = (impl_->next_first + 1) % count;
  for (std::size_t i = 0; i < count; ++i) {
    if (Spoke* spoke = impl_->spokes[(impl_->next_first + i) % count].get()) {
      moved += impl_->carry_from(*spoke, now, budget.packets_per_port);
    }
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (Spoke* spoke = impl_->spokes[(impl_->next_first + i) % count].get()) {
      moved += impl_->carry_to(*spoke, now, budget.packets_per_port);
      moved += spoke->port.deliver_loopback(budget.packets_per_port);
      moved += spoke->port.notify();
    }
  }
  return moved != 0 || next_deadline() <= now;
}

Nanoseconds Fabric::Impl::next_deadline(const Spoke& spoke) {
  if (spoke.port.has_local_work()) return 0;
  const Channel& up = spoke.port.link().channel(Direction::from_host);
  const Channel& down = spoke.port.link().channel(Direction::to_host);
  Nanoseconds earliest = std::min({up.next_arrival(), down.next_start(), down.next_arrival()});
  // A packet that waits for room elsewhere moves when that queue does.
  if (up.front() != nullptr && may_forward(*up.front())) {
    earliest = std::min(earliest, up.next_start());
  }
  return earliest;
}

Nanoseconds Fabric::next_deadline() const {
  Nanoseconds earliest = kNever;
  for (const auto& spoke : impl_->spokes) {
    if (spoke) earliest = std::min(earliest, impl_->next_deadline(*spoke));
  }
  return earliest;
}

std::vector<LinkStatus> Fabric::status() const {
  std::vector<LinkStatus> all;
  for (const auto& spoke : impl_->spokes) {
    if (!spoke) continue;
    const HcaPort& port = spoke->port;
    const Link& link = port.link();
    all.push_back({port.name(),
                   link.up,
                   port.attributes().state,
                   port.attributes().lid,
                   port.attributes().port_guid,
                   port.counters(),
                   {link.channel(Direction::from_host).waiting(),
                    link.channel(Direction::to_host).waiting()}});
  }
  return all;
}

}  // namespace softhca::fabric
