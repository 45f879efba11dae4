// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <array>
#include <cstdint>

#include "hw-model/fabric/link_trap.h"
#include "hw-model/fabric/mad_outbox.h"
#include "hw-model/fabric/subnet.h"
#include "hw-model/fabric/subnet_administrator.h"
#include "hw-model/fabric/subnet_manager.h"
#include "hw-model/runtime/clock.h"

namespace softhca::fabric {

/// What sits behind the switch's management port: the subnet management interface, which routes
/// directed SMPs, and the agents, manager and administrator that datagrams to the switch are for.
/// Answers go to the outbox.
class SwitchAgent {
 public:
  SwitchAgent(Subnet& subnet, SubnetManager& manager, SubnetAdministrator& administrator,
              MadOutbox& outbox, const Clock& clock);

  /// True if the packet is one that the management port takes from `in_port` whatever its LID says:
  /// a directed route SMP in the part of its path that goes by ports, or one to the permissive LID.
  static bool takes(const ib::Packet& packet);
  /// A packet for the management port, or that it takes().
  void receive(const ib::Packet& packet, std::uint8_t in_port);
  /// A link of the switch went up or down: another master is told of it.
  void link_changed();
  /// Sends what is due. Returns how many datagrams.
  std::size_t step(Nanoseconds now);
  Nanoseconds next_deadline() const { return trap_.next_deadline(); }

 private:
  using Mad = std::array<std::uint8_t, ib::kMadSize>;

  void receive_smp(const MadAddress& from, Mad& smp);
  void receive_directed(const MadAddress& from, Mad& smp);
  void receive_gmp(const MadAddress& from, const Mad& mad);
  bool consume(const MadAddress& from, const Mad& smp);
  bool answer(const MadAddress& from, const Mad& request, Mad& response);
  std::uint16_t execute(const MadAddress& from, const Mad& request, std::uint8_t* data);
  void notice_foreign_manager(const MadAddress& from, const Mad& request);
  std::uint16_t own_lid() const { return subnet_.node().management().attributes.lid; }

  Subnet& subnet_;
  SubnetManager& manager_;
  SubnetAdministrator& administrator_;
  MadOutbox& outbox_;
  const Clock& clock_;
  LinkTrap trap_;
};

}  // namespace softhca::fabric
