// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Subnet management agent of an HCA port (IBA 14.2.5).
#include <algorithm>
#include <cstring>

#include "hw-model/fabric/port_agent.h"

namespace softhca::fabric {
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
      encode_port_info(view(), data);
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
    case ib::SmpAttribute::mlnx_extended_port_info:
      std::memset(data, 0, 64);  // No FDR10.
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

std::uint16_t PortAgent::set_port_info(const std::uint8_t* data) {
  using Info = ib::PortInfo;
  if (const auto status = check_port_info(view(), data); status != ib::kMadOk) return status;
  const LinkRequest request = requested_link_state(view(), data);
  store_port_info(PortKind::hca, data, attributes_, stored_);
  assign_lid(static_cast<std::uint16_t>(Info::lid::get(data)),
             static_cast<std::uint16_t>(Info::master_sm_lid::get(data)));
  if (const auto prefix = Info::gid_prefix::get(data); prefix != attributes_.subnet_prefix) {
    attributes_.subnet_prefix = prefix;
    refresh_gids();
    on_event_(ib::PortEvent::guid_change);
  }
  obey(request);
  if (Info::client_reregister::get(data) != 0) on_event_(ib::PortEvent::client_reregister);
  return ib::kMadOk;
}

void PortAgent::obey(LinkRequest request) {
  if (request == LinkRequest::retrain || request == LinkRequest::disable) {
    on_link_request_(request);
    return;
  }
  if (advance_port_state(attributes_, request) && attributes_.state == ib::PortState::active) {
    on_event_(ib::PortEvent::active);
  }
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
