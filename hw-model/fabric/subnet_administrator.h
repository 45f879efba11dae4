// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "hw-model/fabric/event_subscriptions.h"
#include "hw-model/fabric/mad_outbox.h"
#include "hw-model/fabric/multicast_groups.h"
#include "hw-model/fabric/rmpp_sender.h"
#include "hw-model/fabric/sa_query.h"
#include "hw-model/fabric/service_registry.h"
#include "hw-model/fabric/subnet.h"
#include "hw-model/fabric/subnet_manager.h"
#include "hw-model/runtime/clock.h"

namespace softhca::fabric {

/// Subnet administration of the built-in manager (IBA chapter 15): paths, multicast groups,
/// services, events and what the subnet looks like. Answers only while its manager is master; what
/// was registered is void when that becomes master anew.
///
/// Whoever asks is known by the LID its datagram came from: a port can register and remove only
/// what is its own.
class SubnetAdministrator {
 public:
  SubnetAdministrator(Subnet& subnet, const SubnetManager& manager, MadOutbox& outbox,
                      const Clock& clock);

  /// A datagram of the subnet administration class.
  void receive(const MadAddress& from, ib::MadIn mad);
  /// A link went up or down: ports come and go with what they had registered.
  void link_changed(Spoke& spoke, bool up);

  std::size_t step(Nanoseconds now);
  Nanoseconds next_deadline() const;

 private:
  using Mad = std::array<std::uint8_t, ib::kMadSize>;

  void follow_reign();
  void group_changed(const MulticastGroup& group, MulticastGroups::Change change);
  void respond(const MadAddress& from, const Mad& request, std::uint16_t status);
  void respond_records(const MadAddress& from, const Mad& request, RecordList list);
  void get(const MadAddress& from, const Mad& request);
  void modify(const MadAddress& from, const Mad& request);
  std::optional<RecordList> find(std::uint16_t attribute, const SaQuery& query);
  std::optional<EndPort> requester(const MadAddress& from);
  std::uint16_t set(const MadAddress& from, const EndPort& port, const Mad& request,
                    std::uint8_t* record);
  std::uint16_t remove(const EndPort& port, const Mad& request, std::uint8_t* record);
  EndPort own() const;

  Subnet& subnet_;
  const SubnetManager& manager_;
  MadOutbox& outbox_;
  const Clock& clock_;
  std::uint32_t reign_ = 0;
  RmppSender rmpp_;
  MulticastGroups groups_;
  ServiceRegistry services_;
  EventSubscriptions subscriptions_;
};

}  // namespace softhca::fabric
