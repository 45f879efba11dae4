// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/fabric/fabric.h"

#include <algorithm>
#include <utility>

#include "hw-model/fabric/hca_port.h"
#include "hw-model/fabric/mad_outbox.h"
#include "hw-model/fabric/subnet.h"
#include "hw-model/fabric/subnet_administrator.h"
#include "hw-model/fabric/subnet_manager.h"
#include "hw-model/fabric/switch_agent.h"
#include "hw-model/ib/opcodes.h"

namespace softhca::fabric {
namespace {

/// Locally administered, and above any host's: the built-in manager never wins by its GUID.
constexpr std::uint64_t kSwitchGuid = 0xfeffff0000000001ULL;
constexpr std::uint8_t kManagementPort = 0;

}  // namespace

struct Fabric::Impl {
  const Clock& clock;
  MadOutbox outbox;
  Subnet subnet;
  SubnetManager manager;
  SubnetAdministrator administrator;
  SwitchAgent agent;
  std::size_t next_first = 0;  ///< Whose turn it is to be served first.
  /// Something happened that the managers may have to act upon.
  bool attention = true;
  Nanoseconds management_due = kNever;  ///< When they want to act though nothing happens.
  Nanoseconds next_step = 0;            ///< next_deadline() after the last step.

  explicit Impl(const Clock& the_clock)
      : clock(the_clock),
        subnet(clock, kSwitchGuid),
        manager(subnet, outbox, clock),
        administrator(subnet, manager, outbox, clock),
        agent(subnet, manager, administrator, outbox, clock) {
    subnet.on_link([this](Spoke& spoke, bool up) {
      manager.link_changed(spoke, up);
      administrator.link_changed(spoke, up);
      agent.link_changed();
    });
  }

  /// Something changed that the managers may have to act upon.
  void attend() {
    attention = true;
    subnet.step_request().make();
  }
  /// Where a unicast packet goes: a host, or null and `to_management` says whether the switch
  /// itself is meant.
  Spoke* route(const ib::Packet& packet, bool& to_management);
  void forward(Spoke& from, ib::PacketPtr packet);
  void forward_multicast(Spoke& from, const ib::Packet& packet);
  bool admit(Spoke& from, const ib::Packet& packet);
  void enqueue(Spoke& to, ib::PacketPtr packet);
  bool may_forward(const ib::Packet& packet);
  void to_management(Spoke& from, const ib::Packet& packet);
  void send_own_datagrams();
  bool needs_management(Nanoseconds now);
  std::size_t manage(Nanoseconds now);
  std::size_t carry(Nanoseconds now, std::size_t packets_per_port);
  std::size_t carry_from(Spoke& spoke, Nanoseconds now, std::size_t max_packets);
  std::size_t carry_to(Spoke& spoke, Nanoseconds now, std::size_t max_packets);
  /// Nothing was asked for since the last step, and nothing will be due.
  bool at_rest() const {
    return next_step == kNever && !subnet.step_request().made() && subnet.short_way().at_rest();
  }
  [[gnu::noinline]] bool step(const FabricBudget& budget);
  bool move(Nanoseconds now, std::size_t packets_per_port);
  Nanoseconds next_deadline(Spoke& spoke);
  Nanoseconds next_deadline();
};

Spoke* Fabric::Impl::route(const ib::Packet& packet, bool& to_management) {
  const std::uint8_t port = subnet.node().linear().port(packet.path.dlid);
  to_management =
      port == kManagementPort || packet.path.dlid == subnet.node().management().attributes.lid;
  return to_management ? nullptr : subnet.at_port(port);
}

// What a switch port lets in: SMPs always, the rest if it is ACTIVE and in the partition
// (IBA 7.2.7, 18.2.4.2.1).
bool Fabric::Impl::admit(Spoke& from, const ib::Packet& packet) {
  SwitchPort& port = subnet.switch_port(from);
  if (!port.active()) {
    port.counters.rcv_switch_relay_errors += packet.count;
    return false;
  }
  if (port.admits(packet.bth.pkey, kEnforceInbound)) return true;
  port.counters.rcv_constraint_errors += packet.count;
  return false;
}

void Fabric::Impl::enqueue(Spoke& to, ib::PacketPtr packet) {
  SwitchPort& port = subnet.switch_port(to);
  const unsigned count = packet->count;
  if (packet->bth.dest_qp != ib::kQp0) {
    if (!port.active()) {
      port.counters.xmit_discards += count;
      return;
    }
    if (!port.admits(packet->bth.pkey, kEnforceOutbound)) {
      port.counters.xmit_constraint_errors += count;
      return;
    }
  }
  const bool accepted =
      to.port.link().up && to.port.link().channel(Direction::to_host).push(std::move(packet));
  if (!accepted) port.counters.xmit_discards += count;
}

void Fabric::Impl::to_management(Spoke& from, const ib::Packet& packet) {
  attention = true;
  agent.receive(packet, from.number);
  send_own_datagrams();
}

void Fabric::Impl::forward(Spoke& from, ib::PacketPtr packet) {
  if (packet->bth.dest_qp == ib::kQp0) {
    if (SwitchAgent::takes(*packet)) {
      to_management(from, *packet);
      return;
    }
  } else if (!admit(from, *packet)) {
    return;
  }
  if (ib::is_multicast_lid(packet->path.dlid)) {
    forward_multicast(from, *packet);
    return;
  }
  bool for_switch = false;
  Spoke* to = route(*packet, for_switch);
  if (for_switch) {
    to_management(from, *packet);
  } else if (to == nullptr || to == &from) {
    subnet.switch_port(from).counters.rcv_switch_relay_errors += packet->count;
  } else {
    enqueue(*to, std::move(packet));
  }
}

// The members of the group by the forwarding table; under the built-in manager also the ports where
// a QP is attached to the MGID, which counts as having joined.
void Fabric::Impl::forward_multicast(Spoke& from, const ib::Packet& packet) {
  const PortMask* members = subnet.node().multicast().ports(packet.path.dlid);
  const bool by_mgid = manager.master() && packet.path.has_grh;
  if (members == nullptr && !by_mgid) {
    ++subnet.switch_port(from).counters.rcv_switch_relay_errors;
    return;
  }
  subnet.for_each([&](Spoke& to) {
    const bool member = (members != nullptr && members->test(to.number)) ||
                        (by_mgid && to.port.joined(packet.path.grh.dgid));
    if (&to != &from && member) enqueue(to, std::make_unique<ib::Packet>(packet));
  });
}

// A packet waits in front of its first link until there is room in front of the second.
bool Fabric::Impl::may_forward(const ib::Packet& packet) {
  if (ib::is_multicast_lid(packet.path.dlid)) return true;
  bool to_management = false;
  const Spoke* to = route(packet, to_management);
  return to == nullptr || !to->port.link().up ||
         to->port.link().channel(Direction::to_host).ready();
}

// What the management port sends: out of a port, or by the forwarding table.
void Fabric::Impl::send_own_datagrams() {
  while (!outbox.empty()) {
    MadOutbox::Outgoing next = outbox.take();
    bool to_management = false;
    Spoke* to = next.port != kManagementPort ? subnet.at_port(next.port)
                                             : route(*next.packet, to_management);
    if (to != nullptr) enqueue(*to, std::move(next.packet));
  }
}

bool Fabric::Impl::needs_management(Nanoseconds now) {
  bool needed = attention || management_due <= now;
  subnet.for_each([&needed](Spoke& spoke) { needed |= spoke.port.agent().touched(); });
  return needed;
}

std::size_t Fabric::Impl::manage(Nanoseconds now) {
  subnet.for_each([](Spoke& spoke) { spoke.port.agent().looked_at(); });
  std::size_t done = subnet.change_links(now);
  done += manager.step(now);
  done += administrator.step(now);
  done += agent.step(now);
  send_own_datagrams();
  attention = done != 0;
  management_due = std::min({subnet.next_link_change(), manager.next_deadline(),
                             administrator.next_deadline(), agent.next_deadline()});
  return done;
}

std::size_t Fabric::Impl::carry_from(Spoke& spoke, Nanoseconds now, std::size_t max_packets) {
  return spoke.port.link().advance(
      Direction::from_host, now, max_packets, spoke.port.counters(),
      subnet.switch_port(spoke).counters,
      [this](const ib::Packet& packet) { return may_forward(packet); },
      [this, &spoke](ib::PacketPtr packet) { forward(spoke, std::move(packet)); });
}

std::size_t Fabric::Impl::carry_to(Spoke& spoke, Nanoseconds now, std::size_t max_packets) {
  return spoke.port.link().advance(
      Direction::to_host, now, max_packets, subnet.switch_port(spoke).counters,
      spoke.port.counters(), [](const ib::Packet&) { return true; },
      [&spoke](ib::PacketPtr packet) {
        spoke.port.receive(*packet);
        spoke.port.packets().release(std::move(packet));
      });
}

/// One pass over all links, in both directions. Returns how many packets moved.
std::size_t Fabric::Impl::carry(Nanoseconds now, std::size_t packets_per_port) {
  const std::size_t count = subnet.size();
  std::size_t moved = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (Spoke* spoke = subnet.slot((next_first + i) % count)) {
      moved += carry_from(*spoke, now, packets_per_port);
    }
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (Spoke* spoke = subnet.slot((next_first + i) % count)) {
      moved += carry_to(*spoke, now, packets_per_port);
      moved += spoke->port.deliver_loopback(packets_per_port);
      spoke->port.end_delivery();
      moved += spoke->port.notify();
    }
  }
  return moved;
}

Fabric::Fabric(const Clock& clock) : impl_(std::make_unique<Impl>(clock)) {}
Fabric::~Fabric() = default;

ib::Port* Fabric::attach(const HostConfig& config) {
  const std::uint64_t guid = config.port_guid != 0 ? config.port_guid : config.node_guid;
  const bool taken = config.name.empty() || guid == 0 || guid == kSwitchGuid ||
                     impl_->subnet.find(config.name) != nullptr ||
                     impl_->subnet.find_by_guid(guid) != nullptr;
  if (taken || (impl_->manager.master() && impl_->manager.choose_lid(guid) == 0)) return nullptr;
  Spoke* spoke = impl_->subnet.add(config);
  if (spoke == nullptr) return nullptr;
  impl_->subnet.set_cable(*spoke, true);
  impl_->attend();
  return &spoke->port;
}

bool Fabric::connect(std::string_view name, ib::PortClient* client) {
  Spoke* spoke = impl_->subnet.find(name);
  if (spoke == nullptr) return false;
  spoke->port.connect(client);
  impl_->attend();
  return true;
}

bool Fabric::detach(std::string_view name) {
  Spoke* spoke = impl_->subnet.find(name);
  if (spoke == nullptr) return false;
  const std::uint8_t port = spoke->number;
  spoke->port.connect(nullptr);
  impl_->subnet.remove(*spoke);
  impl_->manager.forget(port);
  impl_->attend();
  return true;
}

ib::Port* Fabric::find(std::string_view name) {
  Spoke* spoke = impl_->subnet.find(name);
  return spoke != nullptr ? &spoke->port : nullptr;
}

bool Fabric::set_link(std::string_view name, bool up) {
  Spoke* spoke = impl_->subnet.find(name);
  if (spoke == nullptr) return false;
  impl_->subnet.set_cable(*spoke, up);
  impl_->attend();
  return true;
}

bool Fabric::configure_link(std::string_view name, const LinkConfig& config) {
  Spoke* spoke = impl_->subnet.find(name);
  if (spoke == nullptr) return false;
  spoke->port.link().config = config;
  impl_->subnet.step_request().make();
  return true;
}

bool Fabric::set_fault(std::string_view name, FaultHook hook) {
  Spoke* spoke = impl_->subnet.find(name);
  if (spoke == nullptr) return false;
  spoke->port.link().fault = std::move(hook);
  impl_->subnet.step_request().note_change();
  return true;
}

bool Fabric::add_observer(std::string_view name, LinkObserver& observer) {
  bool found = name.empty();
  impl_->subnet.step_request().note_change();
  impl_->subnet.for_each([&](Spoke& spoke) {
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
  impl_->subnet.for_each([&](Spoke& spoke) { std::erase(spoke.port.link().observers, &observer); });
}

/// What was asked for, or is due. True if anything moved.
bool Fabric::Impl::move(Nanoseconds now, std::size_t packets_per_port) {
  // A request and the acknowledge that its delivery causes: both move in one step.
  constexpr unsigned kRounds = 2;
  subnet.step_request().take();
  std::size_t moved = needs_management(now) ? manage(now) : 0;
  subnet.for_each([&](Spoke& spoke) { moved += spoke.port.notify(); });
  // Who is first changes, so that a full queue is not always refilled by the same host.
  if (subnet.size() != 0) next_first = (next_first + 1) % subnet.size();
  for (unsigned round = 0; round < kRounds; ++round) {
    const std::size_t carried = carry(now, packets_per_port);
    moved += carried;
    if (carried == 0) break;
  }
  next_step = next_deadline();
  return moved != 0;
}

bool Fabric::Impl::step(const FabricBudget& budget) {
  const Nanoseconds now = clock.now();
  const bool carried = subnet.short_way().take_activity();
  subnet.short_way().end_turn();
  if (!subnet.step_request().made() && next_step > now) return carried;
  return move(now, budget.packets_per_port) || carried || subnet.short_way().active() ||
         subnet.step_request().made() || next_step <= now;
}

bool Fabric::step(const FabricBudget& budget) {
  return !impl_->at_rest() && impl_->step(budget);
}

Nanoseconds Fabric::Impl::next_deadline(Spoke& spoke) {
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

Nanoseconds Fabric::Impl::next_deadline() {
  if (needs_management(0)) return 0;
  Nanoseconds earliest = management_due;
  subnet.for_each([&](Spoke& spoke) { earliest = std::min(earliest, next_deadline(spoke)); });
  return earliest;
}

Nanoseconds Fabric::next_deadline() const {
  Subnet& subnet = impl_->subnet;
  return subnet.short_way().active() || subnet.step_request().made() ? 0 : impl_->next_step;
}

std::vector<LinkStatus> Fabric::status() const {
  std::vector<LinkStatus> all;
  impl_->subnet.for_each([&](Spoke& spoke) {
    const HcaPort& port = spoke.port;
    const Link& link = port.link();
    all.push_back({port.name(),
                   spoke.cable,
                   link.up,
                   port.attributes().state,
                   port.attributes().lid,
                   port.attributes().port_guid,
                   port.counters(),
                   {link.channel(Direction::from_host).waiting(),
                    link.channel(Direction::to_host).waiting()}});
  });
  return all;
}

}  // namespace softhca::fabric
