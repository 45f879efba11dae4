// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The InfiniBand port as the driver sees it (PRM "HCA vport", "MAD_IFC").
#include "hw-model/prm/vport.h"

#include <algorithm>
#include <cstring>

#include "hw-model/firmware/handlers.h"
#include "hw-model/ib/mad.h"
#include "hw-model/ib/mad_agent.h"
#include "hw-model/prm/commands_hca.h"

namespace softhca::firmware {
namespace {

using prm::CommandStatus;
using prm::HcaVportContext;

constexpr std::uint64_t kWholeTable = 0xffff;
constexpr std::uint16_t kIgnoreMKey = 1;
/// Capability bits that a driver may set and clear by MODIFY_HCA_VPORT_CONTEXT.
constexpr std::uint32_t kSelectableCapabilities =
    ib::kPortCapIsSm | ib::kPortCapCommunicationManagement | ib::kPortCapSnmpTunneling |
    ib::kPortCapDeviceManagement | ib::kPortCapVendorClass;

/// Checks port, vport and function, which all vport commands name alike.
template <typename Input>
CommandResult check_vport(const Command& command) {
  const std::uint8_t* in = command.in.data();
  if (Input::other_vport::get(in) != 0 || Input::vport_number::get(in) != 0) {
    return failure(CommandStatus::bad_parameter, Syndrome::bad_vport);
  }
  // Drivers of one-port devices leave the port 0.
  if (Input::port_num::get(in) > 1)
    return failure(CommandStatus::bad_parameter, Syndrome::bad_port);
  return {};
}

}  // namespace

CommandResult query_hca_vport_context(FirmwareState& state, const Command& command) {
  if (const CommandResult bad = check_vport<prm::QueryHcaVportContextInput>(command); !bad.ok())
    return bad;
  const ib::PortAttributes& port = state.port.attributes();
  std::uint8_t* context =
      prm::QueryHcaVportContextOutput::hca_vport_context::at(command.out.data());
  HcaVportContext::has_smi::set(context, 1);
  HcaVportContext::port_physical_state::set(context, port.phys_state);
  HcaVportContext::port_state::set(context, static_cast<std::uint8_t>(port.state));
  HcaVportContext::vport_state::set(context, static_cast<std::uint8_t>(port.state));
  HcaVportContext::system_image_guid::set(context, state.config.node_guid);
  HcaVportContext::port_guid::set(context, port.port_guid);
  HcaVportContext::node_guid::set(context, state.config.node_guid);
  HcaVportContext::cap_mask1::set(context, port.capability_mask);
  HcaVportContext::cap_mask1_field_select::set(context, kSelectableCapabilities);
  HcaVportContext::lid::set(context, port.lid);
  HcaVportContext::lmc::set(context, port.lmc);
  HcaVportContext::subnet_timeout::set(context, port.subnet_timeout);
  HcaVportContext::sm_lid::set(context, port.sm_lid);
  HcaVportContext::sm_sl::set(context, port.sm_sl);
  HcaVportContext::pkey_violation_counter::set(
      context, std::min<std::uint64_t>(state.transport.pkey_violations(), 0xffff));
  HcaVportContext::qkey_violation_counter::set(
      context, std::min<std::uint64_t>(state.transport.qkey_violations(), 0xffff));
  return {};
}

CommandResult modify_hca_vport_context(FirmwareState& state, const Command& command) {
  if (const CommandResult bad = check_vport<prm::ModifyHcaVportContextInput>(command); !bad.ok())
    return bad;
  const std::uint8_t* context =
      prm::ModifyHcaVportContextInput::hca_vport_context::at(command.in.data());
  // GUIDs and the vport state policy belong to the fabric here.
  if (HcaVportContext::field_select::get(context) != 0) {
    return failure(CommandStatus::bad_parameter, Syndrome::field_not_selectable);
  }
  const auto selected =
      static_cast<std::uint32_t>(HcaVportContext::cap_mask1_field_select::get(context));
  if ((selected & ~kSelectableCapabilities) != 0) {
    return failure(CommandStatus::bad_parameter, Syndrome::field_not_selectable);
  }
  const auto wanted = static_cast<std::uint32_t>(HcaVportContext::cap_mask1::get(context));
  const std::uint32_t now = state.port.attributes().capability_mask;
  if (selected != 0) state.port.set_capability_mask((now & ~selected) | (wanted & selected));
  return {};
}

CommandResult query_hca_vport_gid(FirmwareState& state, const Command& command) {
  if (const CommandResult bad = check_vport<prm::QueryHcaVportGidInput>(command); !bad.ok())
    return bad;
  const std::vector<ib::Gid>& gids = state.port.attributes().gids;
  constexpr std::size_t table_size = 8;  // gid_table_size code 0
  const std::uint64_t index = prm::QueryHcaVportGidInput::gid_index::get(command.in.data());
  if (index != kWholeTable && index >= table_size) {
    return failure(CommandStatus::bad_parameter, Syndrome::bad_gid_index);
  }
  const std::size_t first = index == kWholeTable ? 0 : index;
  const std::size_t count = index == kWholeTable ? table_size : 1;
  constexpr std::size_t offset = prm::QueryHcaVportGidOutput::gid_offset;
  if (command.out.size() < offset + count * sizeof(ib::Gid)) {
    return failure(CommandStatus::bad_output_length, Syndrome::output_too_short);
  }
  prm::QueryHcaVportGidOutput::gids_num::set(command.out.data(), count);
  for (std::size_t i = 0; i < count && first + i < gids.size(); ++i) {
    std::memcpy(command.out.data() + offset + i * sizeof(ib::Gid), gids[first + i].data(),
                sizeof(ib::Gid));
  }
  return {};
}

CommandResult query_hca_vport_pkey(FirmwareState& state, const Command& command) {
  if (const CommandResult bad = check_vport<prm::QueryHcaVportPkeyInput>(command); !bad.ok())
    return bad;
  const std::vector<std::uint16_t>& pkeys = state.port.attributes().pkeys;
  constexpr std::size_t table_size = 128;  // pkey_table_size code 0
  constexpr std::size_t entry_size = 4;    // 16 reserved bits before each key
  const std::uint64_t index = prm::QueryHcaVportPkeyInput::pkey_index::get(command.in.data());
  if (index != kWholeTable && index >= table_size) {
    return failure(CommandStatus::bad_parameter, Syndrome::bad_pkey_index);
  }
  const std::size_t first = index == kWholeTable ? 0 : index;
  const std::size_t count = index == kWholeTable ? table_size : 1;
  constexpr std::size_t offset = prm::QueryHcaVportPkeyOutput::pkey_offset;
  if (command.out.size() < offset + count * entry_size) {
    return failure(CommandStatus::bad_output_length, Syndrome::output_too_short);
  }
  for (std::size_t i = 0; i < count && first + i < pkeys.size(); ++i) {
    prm::Field<16, 16>::set(command.out.data() + offset + i * entry_size, pkeys[first + i]);
  }
  return {};
}

CommandResult query_vport_state(FirmwareState& state, const Command& command) {
  if (prm::QueryVportStateInput::other_vport::get(command.in.data()) != 0) {
    return failure(CommandStatus::bad_parameter, Syndrome::bad_vport);
  }
  constexpr std::uint64_t kUp = 1;
  constexpr std::uint64_t kFollow = 2;
  prm::QueryVportStateOutput::admin_state::set(command.out.data(), kFollow);
  prm::QueryVportStateOutput::state::set(
      command.out.data(), state.port.attributes().state == ib::PortState::active ? kUp : 0);
  return {};
}

/// op_mod: bit 0 ignores the M_Key, bit 1 the B_Key of baseboard management, which no agent here
/// has.
CommandResult mad_ifc(FirmwareState& state, const Command& command) {
  if (prm::MadIfcInput::port::get(command.in.data()) != 1) {
    return failure(CommandStatus::bad_parameter, Syndrome::bad_port);
  }
  ib::MadAgent* agent = state.port.mad_agent();
  if (agent == nullptr) return failure(CommandStatus::bad_resource, Syndrome::no_mad_agent);
  const std::uint8_t* request = prm::MadIfcInput::mad::at(command.in.data());
  std::uint8_t* response = prm::MadIfcOutput::response_mad_packet::at(command.out.data());
  const auto check =
      (command.op_mod & kIgnoreMKey) != 0 ? ib::MKeyCheck::ignored : ib::MKeyCheck::enforced;
  const ib::MadResult result =
      agent->process(ib::MadIn(request, ib::kMadSize), ib::MadOut(response, ib::kMadSize), check);
  if (result == ib::MadResult::m_key_wrong) {
    return failure(CommandStatus::bad_packet, Syndrome::bad_m_key);
  }
  return {};
}

}  // namespace softhca::firmware
