// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <map>

#include "hw-model/fabric/end_port.h"
#include "hw-model/fabric/sa_query.h"
#include "hw-model/ib/packet.h"

namespace softhca::fabric {

/// A multicast group and its members (IBA 15.2.5.17).
struct MulticastGroup {
  ib::Gid mgid{};
  std::uint16_t mlid = 0;
  std::uint32_t qkey = 0;
  std::uint16_t pkey = 0xffff;
  std::uint8_t mtu = 0;
  std::uint8_t rate = 0;
  std::uint8_t packet_life_time = 18;
  std::uint8_t tclass = 0;
  std::uint8_t sl = 0;
  std::uint32_t flow_label = 0;
  std::uint8_t hop_limit = 0;
  std::uint8_t scope = 0;
  bool permanent = false;  ///< Exists without members.

  struct Member {
    ib::Gid port_gid{};
    std::uint8_t switch_port = 0;
    std::uint8_t join_state = 0;  ///< ib::JoinState bits.
  };
  std::map<std::uint64_t, Member> members;  ///< By port GUID.
};

/// The groups of the subnet: creation, joining, leaving.
class MulticastGroups {
 public:
  /// Groups at most; members are bounded by the ports of the subnet.
  static constexpr std::size_t kMaxGroups = 1024;
  /// Groups that one port may have created and still holds.
  static constexpr std::size_t kMaxGroupsPerPort = 256;

  /// What happened to a group, for those who forward and those who subscribed.
  enum class Change : std::uint8_t { created, members, deleted };
  using Listener = std::function<void(const MulticastGroup&, Change)>;

  explicit MulticastGroups(Listener listener) : listener_(std::move(listener)) {}

  /// Forgets all, and creates the broadcast group of IPoIB in the default partition (RFC 4391
  /// section 4).
  void reset(std::uint8_t mtu);

  /// SubnAdmSet(MCMemberRecord): creates the group if it is not there and all of its parameters
  /// are, and adds to the JoinState of `port`. Writes the answer to `record`; returns the status.
  std::uint16_t join(const SaQuery& query, const EndPort& port, std::uint8_t* record);
  /// SubnAdmDelete(MCMemberRecord): takes bits off the JoinState. The group ends with its last full
  /// member.
  std::uint16_t leave(const SaQuery& query, const EndPort& port, std::uint8_t* record);
  /// The port is gone, with all its memberships.
  void forget(std::uint64_t port_guid);

  const MulticastGroup* find(const ib::Gid& mgid) const {
    const auto group = groups_.find(mgid);
    return group != groups_.end() ? &group->second : nullptr;
  }
  /// Records that fit a query: of groups; with a PortGID, or for a trusted reader, of members.
  RecordList find_records(const SaQuery& query) const;
  std::size_t size() const { return groups_.size(); }

 private:
  std::uint16_t create(const SaQuery& query, const EndPort& port, const ib::Gid& mgid);
  std::uint16_t free_mlid() const;
  void drop_if_empty(MulticastGroup& group);

  Listener listener_;
  std::map<ib::Gid, MulticastGroup> groups_;
  std::map<std::uint16_t, ib::Gid> mlids_;
  std::uint32_t next_mgid_ = 1;
};

/// Ports of the switch that get a copy of a group's packets: members that receive, not those that
/// only send.
PortMask receivers(const MulticastGroup& group);

}  // namespace softhca::fabric
