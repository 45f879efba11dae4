// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Subnet management agent of a switch (IBA 14.2.5).
#include <algorithm>
#include <cstring>
#include <string_view>

#include "hw-model/fabric/switch_node.h"
#include "hw-model/ib/opcodes.h"

namespace softhca::fabric {
namespace {

constexpr std::string_view kNodeDescription = "Softhca built-in switch";
constexpr std::uint32_t kVendorId = 0x02c9;
constexpr std::uint16_t kSwitchDeviceId = 0xcb84;
constexpr std::size_t kDataSize = 64;

std::uint8_t low_byte(std::uint32_t modifier) {
  return static_cast<std::uint8_t>(modifier & 0xff);
}

}  // namespace

std::uint16_t SwitchNode::process_smp(ib::MadMethod method, std::uint16_t attribute,
                                      std::uint32_t modifier, std::uint8_t in_port,
                                      std::uint8_t* data) {
  const bool set = method == ib::MadMethod::set;
  switch (static_cast<ib::SmpAttribute>(attribute)) {
    case ib::SmpAttribute::node_description:
      if (set) return ib::kMadUnsupportedMethodAttribute;
      std::memset(data, 0, kDataSize);
      std::copy(kNodeDescription.begin(), kNodeDescription.end(), data);
      return ib::kMadOk;
    case ib::SmpAttribute::node_info:
      if (set) return ib::kMadUnsupportedMethodAttribute;
      get_node_info(in_port, data);
      return ib::kMadOk;
    case ib::SmpAttribute::switch_info: {
      const std::uint16_t status = set ? set_switch_info(data) : std::uint16_t{ib::kMadOk};
      get_switch_info(data);
      return status;
    }
    case ib::SmpAttribute::port_info:
      return port_info(method, modifier, in_port, data);
    case ib::SmpAttribute::guid_info:
      return set ? std::uint16_t{ib::kMadUnsupportedMethodAttribute} : guid_info(modifier, data);
    case ib::SmpAttribute::pkey_table:
      return pkey_table(method, modifier, data);
    case ib::SmpAttribute::sl_to_vl_table:
      return sl_to_vl(method, modifier, data);
    case ib::SmpAttribute::vl_arbitration:
      return vl_arbitration(method, modifier, data);
    case ib::SmpAttribute::linear_forwarding_table:
      return linear_table(method, modifier, data);
    case ib::SmpAttribute::multicast_forwarding_table:
      return multicast_table(method, modifier, data);
    case ib::SmpAttribute::mlnx_extended_port_info:
      std::memset(data, 0, kDataSize);  // No FDR10.
      return ib::kMadOk;
    default:
      return ib::kMadUnsupportedMethodAttribute;
  }
}

void SwitchNode::get_node_info(std::uint8_t in_port, std::uint8_t* data) const {
  using Node = ib::NodeInfo;
  constexpr std::uint8_t kSwitch = 2;
  std::memset(data, 0, kDataSize);
  Node::base_version::set(data, 1);
  Node::class_version::set(data, 1);
  Node::node_type::set(data, kSwitch);
  Node::num_ports::set(data, port_count());
  Node::system_image_guid::set(data, guid_);
  Node::node_guid::set(data, guid_);
  Node::port_guid::set(data, guid_);
  Node::partition_cap::set(data, SwitchPort::kPkeys);
  Node::device_id::set(data, kSwitchDeviceId);
  Node::local_port_num::set(data, in_port);
  Node::vendor_id::set(data, kVendorId);
}

void SwitchNode::get_switch_info(std::uint8_t* data) const {
  using Info = ib::SwitchInfo;
  std::memset(data, 0, kDataSize);
  Info::linear_fdb_cap::set(data, LinearForwardingTable::kCapacity);
  Info::multicast_fdb_cap::set(data, MulticastForwardingTable::kCapacity);
  Info::linear_fdb_top::set(data, linear_.top());
  Info::default_port::set(data, default_port_);
  Info::default_multicast_primary_port::set(data, default_multicast_primary_port_);
  Info::default_multicast_not_primary_port::set(data, default_multicast_not_primary_port_);
  Info::life_time_value::set(data, life_time_value_);
  Info::port_state_change::set(data, port_state_change_ ? 1 : 0);
  Info::partition_enforcement_cap::set(data, SwitchPort::kPkeys);
  Info::inbound_enforcement_cap::set(data, 1);
  Info::outbound_enforcement_cap::set(data, 1);
}

std::uint16_t SwitchNode::set_switch_info(const std::uint8_t* data) {
  using Info = ib::SwitchInfo;
  const auto top = static_cast<std::uint16_t>(Info::linear_fdb_top::get(data));
  if (top >= LinearForwardingTable::kCapacity) return ib::kMadInvalidField;
  linear_.set_top(top);
  default_port_ = static_cast<std::uint8_t>(Info::default_port::get(data));
  default_multicast_primary_port_ =
      static_cast<std::uint8_t>(Info::default_multicast_primary_port::get(data));
  default_multicast_not_primary_port_ =
      static_cast<std::uint8_t>(Info::default_multicast_not_primary_port::get(data));
  life_time_value_ = static_cast<std::uint8_t>(Info::life_time_value::get(data));
  // Written as one to clear it (IBA 14.2.5.4).
  if (Info::port_state_change::get(data) != 0) port_state_change_ = false;
  return ib::kMadOk;
}

std::uint16_t SwitchNode::port_info(ib::MadMethod method, std::uint32_t modifier,
                                    std::uint8_t in_port, std::uint8_t* data) {
  const std::uint8_t number = low_byte(modifier);
  if (number > port_count()) return ib::kMadInvalidField;
  SwitchPort& target = ports_[number];
  const PortKind kind = number == 0 ? PortKind::switch_management : PortKind::switch_external;
  const PortInfoView view{kind, target.attributes, target.stored, in_port};
  std::uint16_t status = ib::kMadOk;
  if (method == ib::MadMethod::set) {
    status = check_port_info(view, data);
    if (status == ib::kMadOk) set_port_info(number, data);
  }
  encode_port_info(view, data);
  return status;
}

void SwitchNode::set_port_info(std::uint8_t number, const std::uint8_t* data) {
  SwitchPort& target = ports_[number];
  const PortKind kind = number == 0 ? PortKind::switch_management : PortKind::switch_external;
  const LinkRequest request =
      requested_link_state({kind, target.attributes, target.stored, 0}, data);
  store_port_info(kind, data, target.attributes, target.stored);
  if (kind == PortKind::switch_management) {
    target.attributes.lid = static_cast<std::uint16_t>(ib::PortInfo::lid::get(data));
    target.attributes.sm_lid = static_cast<std::uint16_t>(ib::PortInfo::master_sm_lid::get(data));
    target.attributes.subnet_prefix = ib::PortInfo::gid_prefix::get(data);
    return;
  }
  if (request == LinkRequest::retrain || request == LinkRequest::disable) {
    hooks_.link_request(number, request);
  } else {
    advance_port_state(target.attributes, request);
  }
}

std::uint16_t SwitchNode::guid_info(std::uint32_t modifier, std::uint8_t* data) const {
  if (modifier != 0) return ib::kMadInvalidField;
  std::memset(data, 0, kDataSize);
  prm::Field<0, 64>::set(data, guid_);
  return ib::kMadOk;
}

// The modifier holds the block in its lower half, the port in its upper (IBA 14.2.5.7).
std::uint16_t SwitchNode::pkey_table(ib::MadMethod method, std::uint32_t modifier,
                                     std::uint8_t* data) {
  const std::uint32_t number = modifier >> 16;
  if ((modifier & 0xffff) != 0 || number > port_count()) return ib::kMadInvalidField;
  auto& pkeys = ports_[number].attributes.pkeys;
  for (unsigned i = 0; i < SwitchPort::kPkeys; ++i) {
    if (method == ib::MadMethod::set) {
      pkeys[i] = static_cast<std::uint16_t>(data[i * 2] << 8 | data[i * 2 + 1]);
    }
    data[i * 2] = static_cast<std::uint8_t>(pkeys[i] >> 8);
    data[i * 2 + 1] = static_cast<std::uint8_t>(pkeys[i]);
  }
  return ib::kMadOk;
}

// The modifier holds the output port in its low byte, the input port above it (IBA 14.2.5.8).
std::uint16_t SwitchNode::sl_to_vl(ib::MadMethod method, std::uint32_t modifier,
                                   std::uint8_t* data) {
  const auto key = static_cast<std::uint16_t>(modifier & 0xffff);
  if (low_byte(modifier) > port_count() || low_byte(modifier >> 8) > port_count()) {
    return ib::kMadInvalidField;
  }
  constexpr std::size_t kEntriesSize = 8;
  if (method == ib::MadMethod::set) std::copy_n(data, kEntriesSize, sl_to_vl_[key].begin());
  std::memset(data, 0, kDataSize);
  if (const auto found = sl_to_vl_.find(key); found != sl_to_vl_.end()) {
    std::copy(found->second.begin(), found->second.end(), data);
  }
  return ib::kMadOk;
}

// The modifier holds the port in its low byte, the part of the table in its upper half
// (IBA 14.2.5.9).
std::uint16_t SwitchNode::vl_arbitration(ib::MadMethod method, std::uint32_t modifier,
                                         std::uint8_t* data) {
  const std::uint32_t part = modifier >> 16;
  const std::uint8_t number = low_byte(modifier);
  if (part < 1 || part > 4 || number > port_count()) return ib::kMadInvalidField;
  auto& table = ports_[number].vl_arbitration[part - 1];
  if (method == ib::MadMethod::set) std::copy_n(data, table.size(), table.begin());
  std::copy(table.begin(), table.end(), data);
  return ib::kMadOk;
}

std::uint16_t SwitchNode::linear_table(ib::MadMethod method, std::uint32_t modifier,
                                       std::uint8_t* data) {
  if (modifier >= LinearForwardingTable::kCapacity / ib::kLinearFdbPerBlock) {
    return ib::kMadInvalidField;
  }
  for (unsigned i = 0; i < ib::kLinearFdbPerBlock; ++i) {
    const auto lid = static_cast<std::uint16_t>(modifier * ib::kLinearFdbPerBlock + i);
    if (method == ib::MadMethod::set) linear_.set(lid, data[i]);
    data[i] = linear_.entry(lid);
  }
  return ib::kMadOk;
}

// The modifier holds the block of 32 MLIDs in its lower 9 bits, the 16 ports that it speaks of in
// its upper 4 (IBA 14.2.5.12).
std::uint16_t SwitchNode::multicast_table(ib::MadMethod method, std::uint32_t modifier,
                                          std::uint8_t* data) {
  const std::uint32_t block = modifier & 0x1ff;
  const std::uint32_t first_port = (modifier >> 28) * ib::kMulticastFdbPorts;
  if (block >= MulticastForwardingTable::kCapacity / ib::kMulticastFdbPerBlock) {
    return ib::kMadInvalidField;
  }
  for (unsigned i = 0; i < ib::kMulticastFdbPerBlock; ++i) {
    const auto mlid =
        static_cast<std::uint16_t>(ib::kMulticastLidFirst + block * ib::kMulticastFdbPerBlock + i);
    const PortMask* now = multicast_.ports(mlid);
    PortMask ports = now != nullptr ? *now : PortMask{};
    // Bit n of an entry is port n of the position.
    std::uint16_t bits = static_cast<std::uint16_t>(data[i * 2] << 8 | data[i * 2 + 1]);
    for (unsigned bit = 0; bit < ib::kMulticastFdbPorts; ++bit) {
      const unsigned number = first_port + bit;
      if (method == ib::MadMethod::set) ports[number] = (bits >> bit & 1) != 0;
    }
    if (method == ib::MadMethod::set) multicast_.set(mlid, ports);
    bits = 0;
    for (unsigned bit = 0; bit < ib::kMulticastFdbPorts; ++bit) {
      bits |= static_cast<std::uint16_t>(ports[first_port + bit] ? 1U << bit : 0);
    }
    data[i * 2] = static_cast<std::uint8_t>(bits >> 8);
    data[i * 2 + 1] = static_cast<std::uint8_t>(bits);
  }
  return ib::kMadOk;
}

}  // namespace softhca::fabric
