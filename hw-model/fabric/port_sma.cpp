// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Subnet management agent of an HCA port (IBA 14.2.5).
#include <algorithm>
#include <cstring>

#include "hw-model/fabric/port_agent.h"

namespace softhca::fabric {
namespace {

using Info = ib::PortInfo;

constexpr std::uint8_t kWidth4x = 2;
constexpr std::uint8_t kWidths = 3;    // 1X and 4X
constexpr std::uint8_t kSpeedQdr = 4;  // PortInfo.LinkSpeedActive
constexpr std::uint8_t kSpeedsToQdr = 7;
constexpr std::uint8_t kSpeedEdr = 2;  // PortInfo.LinkSpeedExtActive
constexpr std::uint8_t kSpeedsToEdr = 3;
constexpr std::uint8_t kOneVl = 1;  // VL0 only

constexpr std::uint32_t kMaxUnicastLid = 0xbfff;

}  // namespace

std::uint16_t PortAgent::process_smp(ib::MadMethod method, std::uint16_t attribute,
                                     std::uint32_t modifier, std::uint8_t* data) {
  const bool set = method == ib::MadMethod::set;
  switch (static_cast<ib::SmpAttribute>(attribute)) {
    case ib::SmpAttribute::node_description:
      if (set) return ib::kMadUnsupportedMethodAttribute;
      std::copy(node_description_.begin(), node_description_.end(), data);
      return ib::kMadOk;
    case ib::SmpAttribute::node_info:
      if (set) return ib::kMadUnsupportedMethodAttribute;
      get_node_info(data);
      return ib::kMadOk;
    case ib::SmpAttribute::port_info: {
      // The modifier names the port; an HCA port is also port 0, "the one asked".
      if ((modifier & 0xff) > 1) return ib::kMadInvalidField;
      const std::uint16_t status = set ? set_port_info(data) : std::uint16_t{ib::kMadOk};
      get_port_info(data);
      return status;
    }
    case ib::SmpAttribute::guid_info:
      return guid_info(method, modifier, data);
    case ib::SmpAttribute::pkey_table:
      return pkey_table(method, modifier & 0xffff, data);
    case ib::SmpAttribute::sl_to_vl_table:
      sl_to_vl(method, data);
      return ib::kMadOk;
    case ib::SmpAttribute::vl_arbitration:
      if ((modifier >> 16) < 1 || (modifier >> 16) > 4) return ib::kMadInvalidField;
      vl_arbitration(method, modifier, data);
      return ib::kMadOk;
    default:
      return ib::kMadUnsupportedMethodAttribute;
  }
}

void PortAgent::get_node_info(std::uint8_t* data) const {
  using Node = ib::NodeInfo;
  std::memset(data, 0, 64);
  Node::base_version::set(data, 1);
  Node::class_version::set(data, 1);
  Node::node_type::set(data, 1);
  Node::num_ports::set(data, 1);
  Node::system_image_guid::set(data, identity_.system_image_guid);
  Node::node_guid::set(data, identity_.node_guid);
  Node::port_guid::set(data, identity_.port_guid);
  Node::partition_cap::set(data, kPkeys);
  Node::device_id::set(data, identity_.device_id);
  Node::local_port_num::set(data, 1);
  Node::vendor_id::set(data, identity_.vendor_id);
}

void PortAgent::get_port_info(std::uint8_t* data) const {
  std::memset(data, 0, 64);
  const ib::PortAttributes& port = attributes_;
  const bool up = port.state != ib::PortState::down;
  Info::m_key::set(data, stored_.m_key);
  Info::gid_prefix::set(data, port.subnet_prefix);
  Info::lid::set(data, port.lid);
  Info::master_sm_lid::set(data, port.sm_lid);
  Info::capability_mask::set(data, port.capability_mask);
  Info::m_key_lease_period::set(data, stored_.m_key_lease_period);
  Info::local_port_num::set(data, 1);
  Info::link_width_enabled::set(data, kWidths);
  Info::link_width_supported::set(data, kWidths);
  Info::link_width_active::set(data, kWidth4x);
  Info::link_speed_supported::set(data, kSpeedsToQdr);
  Info::port_state::set(data, static_cast<std::uint8_t>(port.state));
  Info::port_physical_state::set(data, port.phys_state);
  Info::link_down_default_state::set(data, stored_.link_down_default_state);
  Info::m_key_protect_bits::set(data, stored_.m_key_protect_bits);
  Info::lmc::set(data, port.lmc);
  Info::link_speed_active::set(data, kSpeedQdr);
  Info::link_speed_enabled::set(data, kSpeedsToQdr);
  Info::neighbor_mtu::set(data, port.active_mtu);
  Info::master_sm_sl::set(data, port.sm_sl);
  Info::vl_cap::set(data, kOneVl);
  Info::vl_high_limit::set(data, stored_.vl_high_limit);
  Info::vl_arbitration_high_cap::set(data, 8);
  Info::vl_arbitration_low_cap::set(data, 8);
  Info::init_type_reply::set(data, stored_.init_type_reply);
  Info::mtu_cap::set(data, port.mtu_cap);
  Info::vl_stall_count::set(data, stored_.vl_stall_count);
  Info::hoq_life::set(data, stored_.hoq_life);
  Info::operational_vls::set(data, stored_.operational_vls);
  data[Info::operational_vls::bit_offset / 8] |= stored_.enforcement;
  Info::guid_cap::set(data, kGuids);
  Info::subnet_timeout::set(data, port.subnet_timeout);
  Info::resp_time_value::set(data, 16);
  Info::local_phy_errors::set(data, stored_.local_phy_errors);
  Info::overrun_errors::set(data, stored_.overrun_errors);
  Info::link_speed_ext_active::set(data, up ? kSpeedEdr : 0);
  Info::link_speed_ext_supported::set(data, kSpeedsToEdr);
  Info::link_speed_ext_enabled::set(data, kSpeedsToEdr);
}

std::uint16_t PortAgent::set_port_info(const std::uint8_t* data) {
  const auto lid = static_cast<std::uint16_t>(Info::lid::get(data));
  const auto sm_lid = static_cast<std::uint16_t>(Info::master_sm_lid::get(data));
  const auto mtu = static_cast<std::uint8_t>(Info::neighbor_mtu::get(data));
  const auto vls = static_cast<std::uint8_t>(Info::operational_vls::get(data));
  if (lid == 0 || lid > kMaxUnicastLid || sm_lid > kMaxUnicastLid) return ib::kMadInvalidField;
  if (mtu > attributes_.mtu_cap || vls > kOneVl) return ib::kMadInvalidField;

  stored_.m_key = Info::m_key::get(data);
  stored_.m_key_lease_period = static_cast<std::uint16_t>(Info::m_key_lease_period::get(data));
  stored_.m_key_protect_bits = static_cast<std::uint8_t>(Info::m_key_protect_bits::get(data));
  if (const auto value = Info::link_down_default_state::get(data); value != 0) {
    stored_.link_down_default_state = static_cast<std::uint8_t>(value);
  }
  stored_.vl_high_limit = static_cast<std::uint8_t>(Info::vl_high_limit::get(data));
  stored_.init_type_reply = static_cast<std::uint8_t>(Info::init_type_reply::get(data));
  stored_.vl_stall_count = static_cast<std::uint8_t>(Info::vl_stall_count::get(data));
  stored_.hoq_life = static_cast<std::uint8_t>(Info::hoq_life::get(data));
  if (vls != 0) stored_.operational_vls = vls;
  stored_.enforcement = data[Info::operational_vls::bit_offset / 8] & 0xf;
  stored_.local_phy_errors = static_cast<std::uint8_t>(Info::local_phy_errors::get(data));
  stored_.overrun_errors = static_cast<std::uint8_t>(Info::overrun_errors::get(data));
  attributes_.sm_sl = static_cast<std::uint8_t>(Info::master_sm_sl::get(data));
  attributes_.lmc = static_cast<std::uint8_t>(Info::lmc::get(data));
  attributes_.subnet_timeout = static_cast<std::uint8_t>(Info::subnet_timeout::get(data));
  if (mtu != 0) attributes_.active_mtu = mtu;
  assign_lid(lid, sm_lid);
  if (const auto prefix = Info::gid_prefix::get(data); prefix != attributes_.subnet_prefix) {
    attributes_.subnet_prefix = prefix;
    refresh_gids();
    on_event_(ib::PortEvent::guid_change);
  }
  const auto status = set_port_state(static_cast<std::uint8_t>(Info::port_state::get(data)));
  if (Info::client_reregister::get(data) != 0) on_event_(ib::PortEvent::client_reregister);
  return status;
}

// PortState may be set to down at any time, to armed from init, to active from armed
// (IBA 14.2.5.6).
std::uint16_t PortAgent::set_port_state(std::uint8_t state) {
  const auto wanted = static_cast<ib::PortState>(state);
  if (state == 0 || wanted == attributes_.state) return ib::kMadOk;
  if (wanted == ib::PortState::down) {
    on_retrain_();
    return ib::kMadOk;
  }
  const bool next = (wanted == ib::PortState::armed && attributes_.state == ib::PortState::init) ||
                    (wanted == ib::PortState::active && attributes_.state == ib::PortState::armed);
  if (!next) return ib::kMadInvalidField;
  set_state(wanted);
  return ib::kMadOk;
}

std::uint16_t PortAgent::guid_info(ib::MadMethod method, std::uint32_t block, std::uint8_t* data) {
  if (block >= kGuids / ib::kGuidsPerBlock) return ib::kMadInvalidField;
  if (method == ib::MadMethod::set) {
    // Entry 0 is the port's own and cannot be written (IBA 14.2.5.5).
    for (unsigned i = 1; i < kGuids; ++i) guids_[i] = prm::Field<0, 64>::get(data + i * 8);
    refresh_gids();
    on_event_(ib::PortEvent::guid_change);
  }
  for (unsigned i = 0; i < kGuids; ++i) prm::Field<0, 64>::set(data + i * 8, guids_[i]);
  return ib::kMadOk;
}

std::uint16_t PortAgent::pkey_table(ib::MadMethod method, std::uint32_t block, std::uint8_t* data) {
  if (block >= kPkeys / ib::kPkeysPerBlock) return ib::kMadInvalidField;
  std::uint16_t* pkeys = &attributes_.pkeys[std::size_t{block} * ib::kPkeysPerBlock];
  bool changed = false;
  for (unsigned i = 0; i < ib::kPkeysPerBlock; ++i) {
    if (method == ib::MadMethod::set) {
      const auto pkey = static_cast<std::uint16_t>(data[i * 2] << 8 | data[i * 2 + 1]);
      changed |= pkey != pkeys[i];
      pkeys[i] = pkey;
    }
    data[i * 2] = static_cast<std::uint8_t>(pkeys[i] >> 8);
    data[i * 2 + 1] = static_cast<std::uint8_t>(pkeys[i]);
  }
  if (changed) on_event_(ib::PortEvent::pkey_change);
  return ib::kMadOk;
}

void PortAgent::sl_to_vl(ib::MadMethod method, std::uint8_t* data) {
  if (method == ib::MadMethod::set) std::copy_n(data, sl_to_vl_.size(), sl_to_vl_.begin());
  std::memset(data, 0, 64);
  std::copy(sl_to_vl_.begin(), sl_to_vl_.end(), data);
}

void PortAgent::vl_arbitration(ib::MadMethod method, std::uint32_t modifier, std::uint8_t* data) {
  auto& table = vl_arbitration_[(modifier >> 16) - 1];
  if (method == ib::MadMethod::set) std::copy_n(data, table.size(), table.begin());
  std::copy(table.begin(), table.end(), data);
}

}  // namespace softhca::fabric
