// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Registers behind ACCESS_REG (PRM "Access Registers").
#include "hw-model/prm/access_registers.h"

#include <array>
#include <cstring>

#include "hw-model/firmware/handlers.h"
#include "hw-model/ib/mad.h"
#include "hw-model/prm/commands_hca.h"

namespace softhca::firmware {
namespace {

using prm::CommandStatus;
using prm::RegisterId;

constexpr std::uint64_t kPort = 1;
constexpr CommandResult kBadPort = failure(CommandStatus::bad_parameter, Syndrome::bad_port);
constexpr CommandResult kReadOnly =
    failure(CommandStatus::bad_parameter, Syndrome::register_read_only);

/// One access: `data` is what the driver sent, `out` what it gets back, equally long and long
/// enough.
struct RegisterAccess {
  FirmwareState& state;
  bool write;
  const std::uint8_t* data;
  std::uint8_t* out;
};

CommandResult echo(const RegisterAccess& access, std::size_t size) {
  if (access.write) std::memcpy(access.out, access.data, size);
  return {};
}

CommandResult host_endianness(const RegisterAccess& access) {
  // Little-endian hosts only; nothing in the device depends on it.
  if (access.write && prm::HostEndiannessRegister::he::get(access.data) != 0) {
    return failure(CommandStatus::bad_parameter, Syndrome::bad_register_value);
  }
  return echo(access, prm::HostEndiannessRegister::size);
}

CommandResult dtor(const RegisterAccess& access) {
  return access.write ? kReadOnly : CommandResult{};
}

CommandResult pcap(const RegisterAccess& access) {
  using prm::PcapRegister;
  if (PcapRegister::local_port::get(access.data) != kPort) return kBadPort;
  // The InfiniBand capability mask is the first of the four words.
  using Mask = prm::Field<0, 32>;
  if (access.write) {
    const std::uint8_t* mask = PcapRegister::port_capability_mask::at(access.data);
    access.state.port.set_capability_mask(static_cast<std::uint32_t>(Mask::get(mask)));
  }
  PcapRegister::local_port::set(access.out, kPort);
  Mask::set(PcapRegister::port_capability_mask::at(access.out),
            access.state.port.attributes().capability_mask);
  return {};
}

CommandResult pmtu(const RegisterAccess& access) {
  using prm::PmtuRegister;
  if (access.write) return kReadOnly;
  if (PmtuRegister::local_port::get(access.data) != kPort) return kBadPort;
  const ib::PortAttributes& port = access.state.port.attributes();
  PmtuRegister::local_port::set(access.out, kPort);
  PmtuRegister::max_mtu::set(access.out, 128ULL << port.mtu_cap);
  PmtuRegister::admin_mtu::set(access.out, 128ULL << port.active_mtu);
  PmtuRegister::oper_mtu::set(access.out, 128ULL << port.active_mtu);
  return {};
}

/// PTYS speed bit of an ibv_port_attr.active_speed code.
std::uint16_t ptys_speed(std::uint16_t active_speed) {
  switch (active_speed) {
    case 1:
      return 1U << 0;  // SDR
    case 2:
      return 1U << 1;  // DDR
    case 4:
      return 1U << 2;  // QDR
    case 8:
      return 1U << 3;  // FDR10
    case 16:
      return 1U << 4;  // FDR
    case 32:
      return 1U << 5;  // EDR
    case 64:
      return 1U << 6;  // HDR
    default:
      return 1U << 5;
  }
}

CommandResult ptys(const RegisterAccess& access) {
  using prm::PtysRegister;
  if (access.write) return kReadOnly;
  if (PtysRegister::local_port::get(access.data) != kPort) return kBadPort;
  const ib::PortAttributes& port = access.state.port.attributes();
  constexpr std::uint64_t kInfiniBand = 1;
  constexpr std::uint64_t k1xTo4x = 0x7;
  const std::uint16_t speed = ptys_speed(port.link_speed_active);
  PtysRegister::local_port::set(access.out, kPort);
  PtysRegister::proto_mask::set(access.out, kInfiniBand);
  PtysRegister::ib_link_width_capability::set(access.out, k1xTo4x);
  PtysRegister::ib_link_width_admin::set(access.out, k1xTo4x);
  PtysRegister::ib_proto_capability::set(access.out, speed | (speed - 1U));
  PtysRegister::ib_proto_admin::set(access.out, speed | (speed - 1U));
  // Zero while the link is down; 4X is code 2 of PortInfo and bit 2 here.
  if (port.phys_state == 5) {
    PtysRegister::ib_link_width_oper::set(access.out, port.link_width_active == 1 ? 1U : 1U << 2);
    PtysRegister::ib_proto_oper::set(access.out, speed);
  }
  return {};
}

CommandResult pvlc(const RegisterAccess& access) {
  using prm::PvlcRegister;
  if (access.write) return kReadOnly;
  if (PvlcRegister::local_port::get(access.data) != kPort) return kBadPort;
  // One data VL; codes as in PortInfo.VLCap.
  PvlcRegister::local_port::set(access.out, kPort);
  PvlcRegister::vl_hw_cap::set(access.out, 1);
  PvlcRegister::vl_admin::set(access.out, 1);
  PvlcRegister::vl_operational::set(access.out, 1);
  return {};
}

/// Asks the port's own subnet management agent.
void read_node_description(ib::MadAgent& agent, std::uint8_t* text) {
  std::array<std::uint8_t, ib::kMadSize> request{};
  std::array<std::uint8_t, ib::kMadSize> response{};
  ib::MadHeader::base_version::set(request.data(), 1);
  ib::MadHeader::mgmt_class::set(request.data(),
                                 static_cast<std::uint8_t>(ib::MgmtClass::subn_lid_routed));
  ib::MadHeader::class_version::set(request.data(), 1);
  ib::MadHeader::method::set(request.data(), static_cast<std::uint8_t>(ib::MadMethod::get));
  ib::MadHeader::attribute_id::set(request.data(),
                                   static_cast<std::uint16_t>(ib::SmpAttribute::node_description));
  if (agent.process(request, response, ib::MKeyCheck::ignored) != ib::MadResult::answered) return;
  std::memcpy(text, ib::Smp::data::at(response.data()), ib::Smp::data::size);
}

CommandResult node_description(const RegisterAccess& access) {
  constexpr std::size_t size = prm::NodeDescriptionRegister::size;
  if (access.write) {
    access.state.port.set_node_description(std::span<const std::uint8_t, size>(access.data, size));
    return echo(access, size);
  }
  if (ib::MadAgent* agent = access.state.port.mad_agent(); agent != nullptr)
    read_node_description(*agent, access.out);
  return {};
}

struct RegisterRow {
  RegisterId id;
  std::size_t size;
  CommandResult (*access)(const RegisterAccess&);
};

constexpr RegisterRow kRegisters[] = {
    {RegisterId::host_endianness, prm::HostEndiannessRegister::size, host_endianness},
    {RegisterId::dtor, prm::DtorRegister::size, dtor},
    {RegisterId::pcap, prm::PcapRegister::size, pcap},
    {RegisterId::pmtu, prm::PmtuRegister::size, pmtu},
    {RegisterId::ptys, prm::PtysRegister::size, ptys},
    {RegisterId::pvlc, prm::PvlcRegister::size, pvlc},
    {RegisterId::node_description, prm::NodeDescriptionRegister::size, node_description},
};

}  // namespace

CommandResult access_register(FirmwareState& state, const Command& command) {
  constexpr std::size_t offset = prm::AccessRegisterInput::register_data_offset;
  const auto id =
      static_cast<RegisterId>(prm::AccessRegisterInput::register_id::get(command.in.data()));
  if (command.op_mod > 1) return failure(CommandStatus::bad_parameter, Syndrome::bad_op_mod);
  for (const RegisterRow& row : kRegisters) {
    if (row.id != id) continue;
    if (command.in.size() < offset + row.size) {
      return failure(CommandStatus::bad_input_length, Syndrome::input_too_short);
    }
    if (command.out.size() < offset + row.size) {
      return failure(CommandStatus::bad_output_length, Syndrome::output_too_short);
    }
    return row.access(
        {state, command.op_mod == 0, command.in.data() + offset, command.out.data() + offset});
  }
  return failure(CommandStatus::bad_parameter, Syndrome::unknown_register);
}

}  // namespace softhca::firmware
