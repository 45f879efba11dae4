// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/fabric/sa_records.h"

#include <algorithm>
#include <array>

#include "hw-model/fabric/end_port.h"

namespace softhca::fabric {
namespace {

using ib::SmpAttribute;

/// Every record of this chapter names its node by LID, and the LID is component 0.
constexpr std::uint64_t kLidComponent = 1;

using AttributeData = std::array<std::uint8_t, 64>;

/// An attribute of the node behind an end port; the modifier as in an SMP to it.
AttributeData read(Subnet& subnet, const EndPort& port, SmpAttribute attribute,
                   std::uint32_t modifier) {
  AttributeData data{};
  if (port.switch_port == 0) {
    subnet.node().process_smp(ib::MadMethod::get, static_cast<std::uint16_t>(attribute), modifier,
                              0, data.data());
  } else if (Spoke* spoke = subnet.at_port(port.switch_port); spoke != nullptr) {
    spoke->port.agent().read(attribute, modifier, data.data());
  }
  return data;
}

template <typename Block>
void put(std::uint8_t* record, const AttributeData& data) {
  std::copy_n(data.begin(), Block::size, Block::at(record));
}

template <typename Visit>
void for_each_node(Subnet& subnet, const SaQuery& query, Visit&& visit) {
  const auto lid = static_cast<std::uint16_t>(query.record[0] << 8 | query.record[1]);
  for (const EndPort& port : end_ports(subnet)) {
    if (!query.has(kLidComponent) || owns_lid(port, lid)) visit(port);
  }
}

bool is_node(const SaQuery& query, const AttributeData& info, const AttributeData& description) {
  using Record = ib::NodeRecord;
  using Info = ib::NodeInfo;
  const std::uint8_t* wanted = Record::node_info::at(query.record);
  const auto same = [&](auto field, std::uint64_t component) {
    using Field = decltype(field);
    return !query.has(component) || Field::get(wanted) == Field::get(info.data());
  };
  return same(Info::node_type{}, Record::kNodeType) &&
         same(Info::system_image_guid{}, Record::kSystemImageGuid) &&
         same(Info::node_guid{}, Record::kNodeGuid) && same(Info::port_guid{}, Record::kPortGuid) &&
         (!query.has(Record::kNodeDescription) ||
          std::equal(description.begin(), description.end(),
                     Record::node_description::at(query.record)));
}

void add_port_info(RecordList& list, Subnet& subnet, const SaQuery& query, const EndPort& port,
                   std::uint8_t number) {
  using Record = ib::PortInfoRecord;
  using Info = ib::PortInfo;
  if (list.full() || !query.admits<Record::port_num>(Record::kPortNum, number)) return;
  const AttributeData info = read(subnet, port, SmpAttribute::port_info, number);
  const std::uint8_t* wanted = Record::port_info::at(query.record);
  if (query.has(Record::kBaseLid) && Info::lid::get(wanted) != Info::lid::get(info.data())) return;
  // A port fits that has all of the wanted capabilities.
  const auto capabilities = Info::capability_mask::get(wanted);
  if (query.has(Record::kCapabilityMask) &&
      (Info::capability_mask::get(info.data()) & capabilities) != capabilities) {
    return;
  }
  std::uint8_t* record = list.add();
  Record::lid::set(record, port.attributes->lid);
  Record::port_num::set(record, number);
  put<Record::port_info>(record, info);
}

}  // namespace

RecordList find_nodes(Subnet& subnet, const SaQuery& query) {
  using Record = ib::NodeRecord;
  RecordList list(Record::size);
  for_each_node(subnet, query, [&](const EndPort& port) {
    const AttributeData info = read(subnet, port, SmpAttribute::node_info, 0);
    const AttributeData description = read(subnet, port, SmpAttribute::node_description, 0);
    if (!is_node(query, info, description)) return;
    std::uint8_t* record = list.add();
    Record::lid::set(record, port.attributes->lid);
    put<Record::node_info>(record, info);
    put<Record::node_description>(record, description);
  });
  return list;
}

RecordList find_port_infos(Subnet& subnet, const SaQuery& query) {
  RecordList list(ib::PortInfoRecord::size);
  for_each_node(subnet, query, [&](const EndPort& port) {
    if (port.switch_port != 0) {
      add_port_info(list, subnet, query, port, 1);
      return;
    }
    for (unsigned number = 0; number <= subnet.node().port_count(); ++number) {
      add_port_info(list, subnet, query, port, static_cast<std::uint8_t>(number));
    }
  });
  return list;
}

RecordList find_switch_infos(Subnet& subnet, const SaQuery& query) {
  using Record = ib::SwitchInfoRecord;
  RecordList list(Record::size);
  for_each_node(subnet, query, [&](const EndPort& port) {
    if (port.switch_port != 0) return;
    std::uint8_t* record = list.add();
    Record::lid::set(record, port.attributes->lid);
    put<Record::switch_info>(record, read(subnet, port, SmpAttribute::switch_info, 0));
  });
  return list;
}

RecordList find_links(Subnet& subnet, const SaQuery& query) {
  using Record = ib::LinkRecord;
  RecordList list(Record::size);
  const std::uint16_t switch_lid = subnet.node().management().attributes.lid;
  const auto add = [&](std::uint16_t from, std::uint8_t from_port, std::uint16_t to,
                       std::uint8_t to_port) {
    if (!query.admits<Record::from_lid>(Record::kFromLid, from) ||
        !query.admits<Record::from_port>(Record::kFromPort, from_port) ||
        !query.admits<Record::to_lid>(Record::kToLid, to) ||
        !query.admits<Record::to_port>(Record::kToPort, to_port)) {
      return;
    }
    std::uint8_t* record = list.add();
    Record::from_lid::set(record, from);
    Record::from_port::set(record, from_port);
    Record::to_lid::set(record, to);
    Record::to_port::set(record, to_port);
  };
  for (const EndPort& port : end_ports(subnet)) {
    if (port.switch_port == 0) continue;
    add(switch_lid, port.switch_port, port.attributes->lid, 1);
    add(port.attributes->lid, 1, switch_lid, port.switch_port);
  }
  return list;
}

RecordList find_managers(Subnet& subnet, const SubnetManager& manager, const SaQuery& query) {
  using Record = ib::SmInfoRecord;
  RecordList list(Record::size);
  for_each_node(subnet, query, [&](const EndPort& port) {
    if (port.switch_port != 0) return;
    std::uint8_t* record = list.add();
    AttributeData info{};
    manager.get_sm_info(info.data());
    Record::lid::set(record, port.attributes->lid);
    put<Record::sm_info>(record, info);
  });
  return list;
}

RecordList find_linear_tables(Subnet& subnet, const SaQuery& query) {
  using Record = ib::LinearFdbRecord;
  constexpr std::uint64_t kBlock = 1ULL << 1;
  RecordList list(Record::size);
  for_each_node(subnet, query, [&](const EndPort& port) {
    if (port.switch_port != 0) return;
    const LinearForwardingTable& table = subnet.node().linear();
    for (unsigned block = 0; block <= table.top() / ib::kLinearFdbPerBlock; ++block) {
      // Blocks without a route are not worth a record, unless asked for.
      bool used = query.has(kBlock);
      for (unsigned i = 0; i < ib::kLinearFdbPerBlock && !used; ++i) {
        used = table.entry(static_cast<std::uint16_t>(block * ib::kLinearFdbPerBlock + i)) !=
               LinearForwardingTable::kNoRoute;
      }
      if (!used || !query.admits<Record::block_number>(kBlock, block)) continue;
      std::uint8_t* record = list.add();
      Record::lid::set(record, port.attributes->lid);
      Record::block_number::set(record, block);
      put<Record::table>(record, read(subnet, port, SmpAttribute::linear_forwarding_table, block));
    }
  });
  return list;
}

RecordList find_multicast_tables(Subnet& subnet, const SaQuery& query) {
  using Record = ib::MulticastFdbRecord;
  constexpr std::uint64_t kPosition = 1ULL << 1;
  constexpr std::uint64_t kBlock = 1ULL << 3;
  RecordList list(Record::size);
  for_each_node(subnet, query, [&](const EndPort& port) {
    if (port.switch_port != 0) return;
    constexpr unsigned kBlocks = MulticastForwardingTable::kCapacity / ib::kMulticastFdbPerBlock;
    const unsigned positions = subnet.node().port_count() / ib::kMulticastFdbPorts + 1U;
    for (unsigned at = 0; at < kBlocks * positions; ++at) {
      const unsigned block = at / positions;
      const unsigned position = at % positions;
      const AttributeData table =
          read(subnet, port, SmpAttribute::multicast_forwarding_table, position << 28 | block);
      const bool used =
          std::any_of(table.begin(), table.end(), [](auto byte) { return byte != 0; });
      if (list.full() || !used || !query.admits<Record::position>(kPosition, position) ||
          !query.admits<Record::block_number>(kBlock, block)) {
        continue;
      }
      std::uint8_t* record = list.add();
      Record::lid::set(record, port.attributes->lid);
      Record::position::set(record, position);
      Record::block_number::set(record, block);
      put<Record::table>(record, table);
    }
  });
  return list;
}

RecordList find_guid_infos(Subnet& subnet, const SaQuery& query) {
  using Record = ib::GuidInfoRecord;
  constexpr std::uint64_t kBlock = 1ULL << 1;
  RecordList list(Record::size);
  for_each_node(subnet, query, [&](const EndPort& port) {
    if (!query.admits<Record::block_number>(kBlock, 0)) return;
    std::uint8_t* record = list.add();
    Record::lid::set(record, port.attributes->lid);
    put<Record::table>(record, read(subnet, port, SmpAttribute::guid_info, 0));
  });
  return list;
}

RecordList find_pkey_tables(Subnet& subnet, const SaQuery& query) {
  using Record = ib::PkeyRecord;
  constexpr std::uint64_t kBlock = 1ULL << 1;
  constexpr std::uint64_t kPort = 1ULL << 2;
  RecordList list(Record::size);
  for_each_node(subnet, query, [&](const EndPort& port) {
    const std::uint8_t number = port.switch_port == 0 ? 0 : 1;
    const auto blocks = static_cast<unsigned>(port.attributes->pkeys.size() / ib::kPkeysPerBlock);
    for (unsigned block = 0; block < blocks && !list.full(); ++block) {
      if (!query.admits<Record::block_number>(kBlock, block) ||
          !query.admits<Record::port_num>(kPort, number)) {
        continue;
      }
      std::uint8_t* record = list.add();
      Record::lid::set(record, port.attributes->lid);
      Record::block_number::set(record, block);
      Record::port_num::set(record, number);
      put<Record::table>(record, read(subnet, port, SmpAttribute::pkey_table, block));
    }
  });
  return list;
}

}  // namespace softhca::fabric
