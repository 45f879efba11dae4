// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/fabric/sa_paths.h"

#include <algorithm>

#include "hw-model/fabric/end_port.h"

namespace softhca::fabric {
namespace {

using Path = ib::PathRecord;

constexpr std::uint8_t kPacketLifeTime = 18;  // 4.096 us * 2^18, about 1 s
constexpr std::uint64_t kExactly = static_cast<std::uint64_t>(ib::Selector::exactly);
constexpr std::uint8_t kMulticastPrefix = 0xff;

/// What the two ends, or the end and a group, agree on.
struct Properties {
  std::uint8_t mtu = 0;
  std::uint8_t rate = 0;
  std::uint8_t life = kPacketLifeTime;
  std::uint8_t sl = 0;
  std::uint16_t pkey = 0;
};

bool fits(const SaQuery& query, const Properties& path) {
  const std::uint8_t* wanted = query.record;
  if (!query.admits<Path::sl>(Path::kSl, path.sl)) return false;
  if (query.has(Path::kMtuSelector | Path::kMtu) &&
      !selector_admits(Path::mtu_selector::get(wanted), Path::mtu::get(wanted), path.mtu)) {
    return false;
  }
  if (query.has(Path::kRateSelector | Path::kRate) &&
      !selector_admits(Path::rate_selector::get(wanted), rate_of_code(Path::rate::get(wanted)),
                       rate_of_code(path.rate))) {
    return false;
  }
  return !query.has(Path::kLifeSelector | Path::kLife) ||
         selector_admits(Path::packet_life_time_selector::get(wanted),
                         Path::packet_life_time::get(wanted), path.life);
}

void write(std::uint8_t* record, const Properties& path) {
  Path::reversible::set(record, 1);
  Path::numb_path::set(record, 1);
  Path::p_key::set(record, path.pkey);
  Path::sl::set(record, path.sl);
  Path::mtu_selector::set(record, kExactly);
  Path::mtu::set(record, path.mtu);
  Path::rate_selector::set(record, kExactly);
  Path::rate::set(record, path.rate);
  Path::packet_life_time_selector::set(record, kExactly);
  Path::packet_life_time::set(record, path.life);
}

std::uint16_t choose_pkey(const SaQuery& query, const EndPort& from, const EndPort& to) {
  if (!query.has(Path::kPkey)) return common_pkey(from, to);
  const auto pkey = static_cast<std::uint16_t>(Path::p_key::get(query.record));
  return in_partition(from, pkey) && in_partition(to, pkey) ? pkey : 0;
}

void add_path(RecordList& list, const SaQuery& query, const EndPort& from, const EndPort& to) {
  const ib::PortAttributes& source = *from.attributes;
  const ib::PortAttributes& target = *to.attributes;
  Properties path;
  path.pkey = choose_pkey(query, from, to);
  if (path.pkey == 0) return;
  path.mtu = std::min(source.active_mtu, target.active_mtu);
  const std::uint8_t rates[] = {rate_code(source), rate_code(target)};
  path.rate = rate_of_code(rates[0]) < rate_of_code(rates[1]) ? rates[0] : rates[1];
  if (&source == &target) path.life = 0;
  if (!fits(query, path)) return;
  std::uint8_t* record = list.add();
  put_gid(Path::sgid::at(record),
          query.has(Path::kSgid) ? gid_at(Path::sgid::at(query.record)) : from.gid);
  put_gid(Path::dgid::at(record),
          query.has(Path::kDgid) ? gid_at(Path::dgid::at(query.record)) : to.gid);
  Path::slid::set(record, query.has(Path::kSlid) ? Path::slid::get(query.record) : source.lid);
  Path::dlid::set(record, query.has(Path::kDlid) ? Path::dlid::get(query.record) : target.lid);
  write(record, path);
}

void add_multicast_path(RecordList& list, const SaQuery& query, const EndPort& from,
                        const MulticastGroup& group) {
  if (!in_partition(from, group.pkey)) return;
  if (!query.admits<Path::p_key>(Path::kPkey, group.pkey)) return;
  const Properties path{group.mtu, group.rate, group.packet_life_time, group.sl, group.pkey};
  if (!fits(query, path)) return;
  std::uint8_t* record = list.add();
  put_gid(Path::sgid::at(record), from.gid);
  put_gid(Path::dgid::at(record), group.mgid);
  Path::slid::set(record, from.attributes->lid);
  Path::dlid::set(record, group.mlid);
  Path::flow_label::set(record, group.flow_label);
  Path::hop_limit::set(record, group.hop_limit);
  Path::tclass::set(record, group.tclass);
  write(record, path);
}

bool is_source(const SaQuery& query, const EndPort& port) {
  const auto slid = static_cast<std::uint16_t>(Path::slid::get(query.record));
  if (query.has(Path::kSlid) && !owns_lid(port, slid)) return false;
  return !query.has(Path::kSgid) || owns_gid(port, gid_at(Path::sgid::at(query.record)));
}

bool is_target(const SaQuery& query, const EndPort& port) {
  const auto dlid = static_cast<std::uint16_t>(Path::dlid::get(query.record));
  if (query.has(Path::kDlid) && !owns_lid(port, dlid)) return false;
  return !query.has(Path::kDgid) || owns_gid(port, gid_at(Path::dgid::at(query.record)));
}

}  // namespace

RecordList find_paths(Subnet& subnet, const MulticastGroups& groups, const SaQuery& query) {
  RecordList list(Path::size);
  const std::vector<EndPort> ports = end_ports(subnet);
  const ib::Gid dgid = gid_at(Path::dgid::at(query.record));
  const bool multicast = query.has(Path::kDgid) && dgid[0] == kMulticastPrefix;
  const MulticastGroup* group = multicast ? groups.find(dgid) : nullptr;
  for (const EndPort& from : ports) {
    if (!is_source(query, from)) continue;
    if (group != nullptr) add_multicast_path(list, query, from, *group);
    if (multicast) continue;
    for (const EndPort& to : ports) {
      if (list.full()) return list;
      if (is_target(query, to)) add_path(list, query, from, to);
    }
  }
  return list;
}

}  // namespace softhca::fabric
