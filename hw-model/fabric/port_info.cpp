// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/fabric/port_info.h"

#include <algorithm>
#include <cstring>

#include "hw-model/ib/opcodes.h"

namespace softhca::fabric {
namespace {

using Info = ib::PortInfo;

constexpr std::uint8_t kOneVl = 1;  // VL0 only
constexpr std::uint8_t kHcaGuids = 8;
constexpr std::uint8_t kSwitchGuids = 1;
constexpr std::uint8_t kVlArbitrationEntries = 8;
constexpr std::uint8_t kResponseTime = 16;

// "As supported" and "no extended speed" (IBA 14.2.5.6).
constexpr std::uint8_t kWidthAsSupported = 255;
constexpr std::uint8_t kSpeedAsSupported = 15;
constexpr std::uint8_t kSpeedExtAsSupported = 31;
constexpr std::uint8_t kSpeedExtDisabled = 30;

// ibv_port_attr.active_speed codes.
constexpr std::uint16_t kSpeedSdr = 1;
constexpr std::uint16_t kSpeedDdr = 2;
constexpr std::uint16_t kSpeedQdr = 4;
constexpr std::uint16_t kSpeedFdr = 0x10;
constexpr std::uint16_t kSpeedEdr = 0x20;

template <typename Field>
std::uint8_t byte_of(const std::uint8_t* data) {
  static_assert(Field::width <= 8);
  return static_cast<std::uint8_t>(Field::get(data));
}

bool up(const ib::PortAttributes& port) {
  return port.state != ib::PortState::down;
}

std::uint8_t speed_ext_code(std::uint16_t speed) {
  return speed == kSpeedEdr ? 2 : speed == kSpeedFdr ? 1 : 0;
}

std::uint8_t speed_code(std::uint16_t speed) {
  return static_cast<std::uint8_t>(speed >= kSpeedFdr ? kSpeedQdr : speed);
}

void encode_link(const PortInfoView& port, std::uint8_t* data) {
  const ib::PortAttributes& attributes = port.attributes;
  Info::link_width_enabled::set(data, port.stored.link_width_enabled);
  Info::link_width_supported::set(data, kWidths);
  Info::link_width_active::set(data, attributes.link_width_active);
  Info::link_speed_supported::set(data, kSpeedsToQdr);
  Info::link_speed_enabled::set(data, port.stored.link_speed_enabled);
  Info::link_speed_active::set(data, speed_code(attributes.link_speed_active));
  Info::link_speed_ext_supported::set(data, kSpeedsFdrEdr);
  Info::link_speed_ext_enabled::set(data, port.stored.link_speed_ext_enabled == 0
                                              ? kSpeedExtDisabled
                                              : port.stored.link_speed_ext_enabled);
  Info::link_speed_ext_active::set(
      data, up(attributes) ? speed_ext_code(attributes.link_speed_active) : 0);
}

}  // namespace

void encode_port_info(const PortInfoView& port, std::uint8_t* data) {
  std::memset(data, 0, Info::size);
  const ib::PortAttributes& attributes = port.attributes;
  const StoredPortInfo& stored = port.stored;
  encode_link(port, data);
  if (port.kind != PortKind::switch_external) {
    Info::m_key::set(data, stored.m_key);
    Info::gid_prefix::set(data, attributes.subnet_prefix);
    Info::lid::set(data, attributes.lid);
    Info::master_sm_lid::set(data, attributes.sm_lid);
    Info::capability_mask::set(data, attributes.capability_mask);
    Info::m_key_lease_period::set(data, stored.m_key_lease_period);
    Info::m_key_protect_bits::set(data, stored.m_key_protect_bits);
    Info::m_key_violations::set(data, stored.m_key_violations);
    Info::lmc::set(data, attributes.lmc);
    Info::master_sm_sl::set(data, attributes.sm_sl);
    Info::subnet_timeout::set(data, attributes.subnet_timeout);
    Info::resp_time_value::set(data, kResponseTime);
    Info::guid_cap::set(data, port.kind == PortKind::hca ? kHcaGuids : kSwitchGuids);
  }
  Info::p_key_violations::set(data, stored.p_key_violations);
  Info::local_port_num::set(data, port.asked_by_port);
  Info::port_state::set(data, static_cast<std::uint8_t>(attributes.state));
  Info::port_physical_state::set(data, attributes.phys_state);
  Info::link_down_default_state::set(data, stored.link_down_default_state);
  Info::neighbor_mtu::set(data, attributes.active_mtu);
  Info::vl_cap::set(data, kOneVl);
  Info::vl_high_limit::set(data, stored.vl_high_limit);
  Info::vl_arbitration_high_cap::set(data, kVlArbitrationEntries);
  Info::vl_arbitration_low_cap::set(data, kVlArbitrationEntries);
  Info::init_type_reply::set(data, stored.init_type_reply);
  Info::mtu_cap::set(data, attributes.mtu_cap);
  Info::vl_stall_count::set(data, stored.vl_stall_count);
  Info::hoq_life::set(data, stored.hoq_life);
  Info::operational_vls::set(data, stored.operational_vls);
  data[Info::operational_vls::bit_offset / 8] |= stored.enforcement;
  Info::local_phy_errors::set(data, stored.local_phy_errors);
  Info::overrun_errors::set(data, stored.overrun_errors);
}

std::uint16_t check_port_info(const PortInfoView& port, const std::uint8_t* data) {
  const auto lid = Info::lid::get(data);
  const auto sm_lid = Info::master_sm_lid::get(data);
  const bool has_lid = port.kind != PortKind::switch_external;
  if (has_lid && (lid == 0 || lid >= ib::kMulticastLidFirst || sm_lid >= ib::kMulticastLidFirst)) {
    return ib::kMadInvalidField;
  }
  if (Info::neighbor_mtu::get(data) > port.attributes.mtu_cap) return ib::kMadInvalidField;
  if (Info::operational_vls::get(data) > kOneVl) return ib::kMadInvalidField;

  const auto width = Info::link_width_enabled::get(data);
  const auto speed = Info::link_speed_enabled::get(data);
  const auto speed_ext = Info::link_speed_ext_enabled::get(data);
  const bool link_ok = (width <= kWidths || width == kWidthAsSupported) &&
                       (speed <= kSpeedsToQdr || speed == kSpeedAsSupported) &&
                       (speed_ext <= kSpeedsFdrEdr || speed_ext == kSpeedExtAsSupported ||
                        speed_ext == kSpeedExtDisabled);
  if (!link_ok) return ib::kMadInvalidField;

  const auto state = static_cast<ib::PortState>(Info::port_state::get(data));
  const auto phys = Info::port_physical_state::get(data);
  // Physical states that can be set: sleep, polling, disabled; only together with "down" or "no
  // change".
  if (phys > kPhysDisabled && phys != port.attributes.phys_state) return ib::kMadInvalidField;
  if (state == ib::PortState{0} || state == ib::PortState::down || state == port.attributes.state) {
    return ib::kMadOk;
  }
  const bool next =
      (state == ib::PortState::armed && port.attributes.state == ib::PortState::init) ||
      (state == ib::PortState::active && port.attributes.state == ib::PortState::armed);
  return next ? ib::kMadOk : ib::kMadInvalidField;
}

LinkRequest requested_link_state(const PortInfoView& port, const std::uint8_t* data) {
  if (port.kind == PortKind::switch_management) return LinkRequest::none;
  const auto state = static_cast<ib::PortState>(Info::port_state::get(data));
  const auto phys = Info::port_physical_state::get(data);
  if (phys == kPhysDisabled && port.attributes.phys_state != kPhysDisabled) {
    return LinkRequest::disable;
  }
  const bool enable = phys == kPhysPolling && port.attributes.phys_state == kPhysDisabled;
  if (enable) return LinkRequest::retrain;
  if (state == ib::PortState::down && port.attributes.state != ib::PortState::down) {
    return LinkRequest::retrain;
  }
  if (state == port.attributes.state) return LinkRequest::none;
  if (state == ib::PortState::armed) return LinkRequest::arm;
  if (state == ib::PortState::active) return LinkRequest::activate;
  return LinkRequest::none;
}

void store_port_info(PortKind kind, const std::uint8_t* data, ib::PortAttributes& attributes,
                     StoredPortInfo& stored) {
  if (kind != PortKind::switch_external) {
    stored.m_key = Info::m_key::get(data);
    stored.m_key_lease_period = static_cast<std::uint16_t>(Info::m_key_lease_period::get(data));
    stored.m_key_protect_bits = byte_of<Info::m_key_protect_bits>(data);
    // The counters of violations can only be cleared (IBA 14.2.5.6).
    if (Info::m_key_violations::get(data) == 0) stored.m_key_violations = 0;
    attributes.sm_sl = byte_of<Info::master_sm_sl>(data);
    attributes.subnet_timeout = byte_of<Info::subnet_timeout>(data);
  }
  if (Info::p_key_violations::get(data) == 0) stored.p_key_violations = 0;
  if (kind == PortKind::hca) attributes.lmc = byte_of<Info::lmc>(data);

  const auto width = byte_of<Info::link_width_enabled>(data);
  if (width != 0) stored.link_width_enabled = width == kWidthAsSupported ? kWidths : width;
  const auto speed = byte_of<Info::link_speed_enabled>(data);
  if (speed != 0) stored.link_speed_enabled = speed == kSpeedAsSupported ? kSpeedsToQdr : speed;
  const auto speed_ext = byte_of<Info::link_speed_ext_enabled>(data);
  if (speed_ext == kSpeedExtDisabled) {
    stored.link_speed_ext_enabled = 0;
  } else if (speed_ext != 0) {
    stored.link_speed_ext_enabled = speed_ext == kSpeedExtAsSupported ? kSpeedsFdrEdr : speed_ext;
  }
  if (const auto value = byte_of<Info::link_down_default_state>(data); value != 0) {
    stored.link_down_default_state = value;
  }
  stored.vl_high_limit = byte_of<Info::vl_high_limit>(data);
  stored.init_type_reply = byte_of<Info::init_type_reply>(data);
  stored.vl_stall_count = byte_of<Info::vl_stall_count>(data);
  stored.hoq_life = byte_of<Info::hoq_life>(data);
  if (const auto vls = byte_of<Info::operational_vls>(data); vls != 0) stored.operational_vls = vls;
  stored.enforcement = data[Info::operational_vls::bit_offset / 8] & 0xf;
  stored.local_phy_errors = byte_of<Info::local_phy_errors>(data);
  stored.overrun_errors = byte_of<Info::overrun_errors>(data);
  if (const auto mtu = byte_of<Info::neighbor_mtu>(data); mtu != 0) attributes.active_mtu = mtu;
}

void negotiate(const StoredPortInfo& one, const StoredPortInfo& other, ib::PortAttributes& result) {
  const unsigned widths = one.link_width_enabled & other.link_width_enabled;
  const unsigned speeds = one.link_speed_enabled & other.link_speed_enabled;
  const unsigned speeds_ext = one.link_speed_ext_enabled & other.link_speed_ext_enabled;
  result.link_width_active = (widths & kWidth4x) != 0 ? kWidth4x : kWidth1x;
  result.link_speed_active = (speeds_ext & 2) != 0       ? kSpeedEdr
                             : (speeds_ext & 1) != 0     ? kSpeedFdr
                             : (speeds & kSpeedQdr) != 0 ? kSpeedQdr
                             : (speeds & kSpeedDdr) != 0 ? kSpeedDdr
                                                         : kSpeedSdr;
}

bool advance_port_state(ib::PortAttributes& attributes, LinkRequest request) {
  if (request == LinkRequest::arm && attributes.state == ib::PortState::init) {
    attributes.state = ib::PortState::armed;
    return true;
  }
  if (request == LinkRequest::activate && attributes.state == ib::PortState::armed) {
    attributes.state = ib::PortState::active;
    return true;
  }
  return false;
}

}  // namespace softhca::fabric
