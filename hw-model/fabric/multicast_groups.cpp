// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/fabric/multicast_groups.h"

#include <algorithm>

#include "hw-model/fabric/forwarding_tables.h"

namespace softhca::fabric {
namespace {

using Record = ib::McMemberRecord;

constexpr std::uint8_t kMulticastPrefix = 0xff;
constexpr std::uint64_t kExactly = static_cast<std::uint64_t>(ib::Selector::exactly);
constexpr std::uint8_t kAllStates =
    ib::kJoinFull | ib::kJoinNon | ib::kJoinSendOnlyNon | ib::kJoinSendOnlyFull;
constexpr std::uint8_t kFullStates = ib::kJoinFull | ib::kJoinSendOnlyFull;
constexpr std::uint8_t kReceivingStates = ib::kJoinFull | ib::kJoinNon;
constexpr std::uint8_t kLinkLocalScope = 2;
constexpr std::uint8_t kRate10Gbit = 3;

// ff12:401b:ffff::ffff:ffff: IPv4 over InfiniBand in partition 0xffff, the broadcast address
// (RFC 4391).
constexpr ib::Gid kIpoibBroadcast = {0xff, 0x12, 0x40, 0x1b, 0xff, 0xff, 0,    0,
                                     0,    0,    0,    0,    0xff, 0xff, 0xff, 0xff};
constexpr std::uint32_t kIpoibQkey = 0x0b1b;
// ff12:a01b:...: groups whose MGID the administrator chose (IBA 15.2.5.17.2).
constexpr ib::Gid kChosenPrefix = {0xff, 0x12, 0xa0, 0x1b};

/// What a request to create a group must bring (IBA 15.2.5.17.1).
constexpr std::uint64_t kToCreate =
    Record::kQkey | Record::kTclass | Record::kPkey | Record::kSl | Record::kFlowLabel;

std::uint64_t guid_of(const EndPort& port) {
  return port.attributes->port_guid;
}

/// Whether a group has what a request asks of it.
bool fits(const SaQuery& query, const MulticastGroup& group) {
  const std::uint8_t* wanted = query.record;
  if (query.has(Record::kMtuSelector | Record::kMtu) &&
      !selector_admits(Record::mtu_selector::get(wanted), Record::mtu::get(wanted), group.mtu)) {
    return false;
  }
  if (query.has(Record::kRateSelector | Record::kRate) &&
      !selector_admits(Record::rate_selector::get(wanted), rate_of_code(Record::rate::get(wanted)),
                       rate_of_code(group.rate))) {
    return false;
  }
  if (query.has(Record::kLifeSelector | Record::kLife) &&
      !selector_admits(Record::packet_life_time_selector::get(wanted),
                       Record::packet_life_time::get(wanted), group.packet_life_time)) {
    return false;
  }
  return query.admits<Record::q_key>(Record::kQkey, group.qkey) &&
         query.admits<Record::mlid>(Record::kMlid, group.mlid) &&
         query.admits<Record::tclass>(Record::kTclass, group.tclass) &&
         query.admits<Record::p_key>(Record::kPkey, group.pkey) &&
         query.admits<Record::sl>(Record::kSl, group.sl) &&
         query.admits<Record::flow_label>(Record::kFlowLabel, group.flow_label) &&
         query.admits<Record::hop_limit>(Record::kHopLimit, group.hop_limit) &&
         query.admits<Record::scope>(Record::kScope, group.scope);
}

/// Whether a port's link is good enough for the group.
bool reaches(const EndPort& port, const MulticastGroup& group) {
  return in_partition(port, group.pkey) && port.attributes->active_mtu >= group.mtu &&
         rate_of_code(rate_code(*port.attributes)) >= rate_of_code(group.rate);
}

void write(const MulticastGroup& group, const MulticastGroup::Member& member,
           std::uint8_t* record) {
  put_gid(Record::mgid::at(record), group.mgid);
  put_gid(Record::port_gid::at(record), member.port_gid);
  Record::q_key::set(record, group.qkey);
  Record::mlid::set(record, group.mlid);
  Record::mtu_selector::set(record, kExactly);
  Record::mtu::set(record, group.mtu);
  Record::tclass::set(record, group.tclass);
  Record::p_key::set(record, group.pkey);
  Record::rate_selector::set(record, kExactly);
  Record::rate::set(record, group.rate);
  Record::packet_life_time_selector::set(record, kExactly);
  Record::packet_life_time::set(record, group.packet_life_time);
  Record::sl::set(record, group.sl);
  Record::flow_label::set(record, group.flow_label);
  Record::hop_limit::set(record, group.hop_limit);
  Record::scope::set(record, group.scope);
  Record::join_state::set(record, member.join_state);
  Record::proxy_join::set(record, 0);
}

bool has_full_member(const MulticastGroup& group) {
  return std::any_of(group.members.begin(), group.members.end(), [](const auto& entry) {
    return (entry.second.join_state & kFullStates) != 0;
  });
}

/// MTU and rate of a new group: what was asked for as far as the creator's link can, else the
/// link's own.
std::uint8_t choose(std::uint64_t selector, bool asked, std::uint64_t wanted, std::uint8_t own) {
  if (!asked) return own;
  switch (static_cast<ib::Selector>(selector)) {
    case ib::Selector::exactly:
      return static_cast<std::uint8_t>(wanted);
    case ib::Selector::less:
      return static_cast<std::uint8_t>(wanted > own ? own : wanted - (wanted != 0 ? 1 : 0));
    case ib::Selector::greater:
    case ib::Selector::largest:
      return own;
  }
  return own;
}

}  // namespace

PortMask receivers(const MulticastGroup& group) {
  PortMask ports;
  for (const auto& [guid, member] : group.members) {
    if ((member.join_state & kReceivingStates) != 0) ports.set(member.switch_port);
  }
  return ports;
}

void MulticastGroups::reset(std::uint8_t mtu) {
  groups_.clear();
  mlids_.clear();
  MulticastGroup& broadcast = groups_[kIpoibBroadcast];
  broadcast.mgid = kIpoibBroadcast;
  broadcast.mlid = ib::kMulticastLidFirst;
  broadcast.qkey = kIpoibQkey;
  broadcast.mtu = mtu;
  broadcast.rate = kRate10Gbit;
  broadcast.scope = kLinkLocalScope;
  broadcast.permanent = true;
  mlids_[broadcast.mlid] = broadcast.mgid;
}

std::uint16_t MulticastGroups::free_mlid() const {
  for (unsigned i = 0; i < kMaxGroups; ++i) {
    const auto mlid = static_cast<std::uint16_t>(ib::kMulticastLidFirst + i);
    if (!mlids_.contains(mlid)) return mlid;
  }
  return 0;
}

std::uint16_t MulticastGroups::create(const SaQuery& query, const EndPort& port,
                                      const ib::Gid& mgid) {
  const std::uint8_t* wanted = query.record;
  if (!query.has(kToCreate)) return ib::kSaInsufficientComponents;
  if ((Record::join_state::get(wanted) & kFullStates) == 0) return ib::kSaRequestInvalid;
  const auto held = std::count_if(groups_.begin(), groups_.end(), [&](const auto& entry) {
    return entry.second.members.contains(guid_of(port));
  });
  const std::uint16_t mlid = free_mlid();
  if (mlid == 0 || static_cast<std::size_t>(held) >= kMaxGroupsPerPort) return ib::kSaNoResources;
  MulticastGroup group;
  group.mgid = mgid;
  group.mlid = mlid;
  group.qkey = static_cast<std::uint32_t>(Record::q_key::get(wanted));
  group.pkey = static_cast<std::uint16_t>(Record::p_key::get(wanted));
  group.mtu =
      choose(Record::mtu_selector::get(wanted), query.has(Record::kMtuSelector | Record::kMtu),
             Record::mtu::get(wanted), port.attributes->active_mtu);
  group.rate =
      choose(Record::rate_selector::get(wanted), query.has(Record::kRateSelector | Record::kRate),
             Record::rate::get(wanted), rate_code(*port.attributes));
  if (query.has(Record::kLifeSelector | Record::kLife)) {
    group.packet_life_time = static_cast<std::uint8_t>(Record::packet_life_time::get(wanted));
  }
  group.tclass = static_cast<std::uint8_t>(Record::tclass::get(wanted));
  group.sl = static_cast<std::uint8_t>(Record::sl::get(wanted));
  group.flow_label = static_cast<std::uint32_t>(Record::flow_label::get(wanted));
  if (query.has(Record::kHopLimit)) {
    group.hop_limit = static_cast<std::uint8_t>(Record::hop_limit::get(wanted));
  }
  group.scope = mgid[1] & 0xf;
  if (group.mtu == 0 || rate_of_code(group.rate) == 0 || !reaches(port, group)) {
    return ib::kSaRequestInvalid;
  }
  mlids_[mlid] = mgid;
  listener_(groups_[mgid] = group, Change::created);
  return ib::kMadOk;
}

std::uint16_t MulticastGroups::join(const SaQuery& query, const EndPort& port,
                                    std::uint8_t* record) {
  const std::uint8_t* wanted = query.record;
  if (!query.has(Record::kPortGid | Record::kJoinState)) return ib::kSaInsufficientComponents;
  const auto state = static_cast<std::uint8_t>(Record::join_state::get(wanted) & kAllStates);
  if (state == 0) return ib::kSaRequestInvalid;
  ib::Gid mgid = gid_at(Record::mgid::at(wanted));
  if (!query.has(Record::kMgid) || mgid == ib::Gid{}) {
    mgid = kChosenPrefix;
    prm::Field<96, 32>::set(mgid.data(), next_mgid_++);
  } else if (mgid[0] != kMulticastPrefix) {
    return ib::kSaRequestInvalid;
  }
  if (!groups_.contains(mgid)) {
    if (const auto status = create(query, port, mgid); status != ib::kMadOk) return status;
  }
  MulticastGroup& group = groups_.at(mgid);
  if (!fits(query, group) || !reaches(port, group)) return ib::kSaRequestInvalid;
  MulticastGroup::Member& member = group.members[guid_of(port)];
  member.port_gid = gid_at(Record::port_gid::at(wanted));
  member.switch_port = port.switch_port;
  member.join_state |= state;
  write(group, member, record);
  listener_(group, Change::members);
  return ib::kMadOk;
}

std::uint16_t MulticastGroups::leave(const SaQuery& query, const EndPort& port,
                                     std::uint8_t* record) {
  if (!query.has(Record::kMgid | Record::kPortGid | Record::kJoinState)) {
    return ib::kSaInsufficientComponents;
  }
  const auto found = groups_.find(gid_at(Record::mgid::at(query.record)));
  if (found == groups_.end()) return ib::kSaRequestInvalid;
  MulticastGroup& group = found->second;
  const auto member = group.members.find(guid_of(port));
  const auto state = static_cast<std::uint8_t>(Record::join_state::get(query.record) & kAllStates);
  if (member == group.members.end() || state == 0 || (member->second.join_state & state) != state) {
    return ib::kSaRequestInvalid;
  }
  member->second.join_state = static_cast<std::uint8_t>(member->second.join_state & ~state);
  write(group, member->second, record);
  if (member->second.join_state == 0) group.members.erase(member);
  listener_(group, Change::members);
  drop_if_empty(group);
  return ib::kMadOk;
}

void MulticastGroups::drop_if_empty(MulticastGroup& group) {
  if (group.permanent || has_full_member(group)) return;
  group.members.clear();
  listener_(group, Change::deleted);
  mlids_.erase(group.mlid);
  groups_.erase(ib::Gid(group.mgid));
}

void MulticastGroups::forget(std::uint64_t port_guid) {
  for (auto at = groups_.begin(); at != groups_.end();) {
    MulticastGroup& group = (at++)->second;
    if (group.members.erase(port_guid) == 0) continue;
    listener_(group, Change::members);
    drop_if_empty(group);
  }
}

RecordList MulticastGroups::find_records(const SaQuery& query) const {
  RecordList list(Record::size);
  const ib::Gid mgid = gid_at(Record::mgid::at(query.record));
  const ib::Gid port_gid = gid_at(Record::port_gid::at(query.record));
  for (const auto& [gid, group] : groups_) {
    if (list.full()) break;
    if ((query.has(Record::kMgid) && mgid != gid) || !fits(query, group)) continue;
    if (query.has(Record::kPortGid) || (query.trusted && !group.members.empty())) {
      for (const auto& [guid, member] : group.members) {
        if (query.has(Record::kPortGid) && member.port_gid != port_gid) continue;
        write(group, member, list.add());
      }
      continue;
    }
    // Without a PortGID the record stands for the group, with the JoinStates of all together.
    MulticastGroup::Member all;
    for (const auto& [guid, member] : group.members) all.join_state |= member.join_state;
    if (group.members.empty() && group.permanent) all.join_state = ib::kJoinFull;
    write(group, all, list.add());
  }
  return list;
}

}  // namespace softhca::fabric
