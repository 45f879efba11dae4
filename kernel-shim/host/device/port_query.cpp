// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/host/device/port_query.h"

#include <algorithm>
#include <cerrno>

#include "hw-model/prm/access_registers.h"
#include "hw-model/prm/commands_hca.h"
#include "hw-model/prm/vport.h"

namespace softhca::shim {
namespace {

using prm::CommandOpcode;

constexpr std::uint16_t kWholeTable = 0xffff;
constexpr std::uint16_t kReadRegister = 1;

template <typename Register>
int read_register(CommandInterface& commands, prm::RegisterId id, std::uint8_t port,
                  std::uint8_t (&data)[Register::size]) {
  constexpr std::size_t offset = prm::AccessRegisterInput::register_data_offset;
  CommandInputBuffer in(CommandOpcode::access_reg, offset + Register::size, kReadRegister);
  prm::AccessRegisterInput::register_id::set(in.data(), static_cast<std::uint16_t>(id));
  Register::local_port::set(in.at(offset), port);
  if constexpr (std::is_same_v<Register, prm::PtysRegister>) {
    Register::proto_mask::set(in.at(offset), 1);
  }
  std::uint8_t out[offset + Register::size] = {};
  const CommandResult result = commands.execute(in, out);
  std::copy_n(out + offset, Register::size, data);
  return result.error;
}

std::uint8_t width_code(std::uint64_t ptys) {
  if ((ptys & 1U << 4) != 0) return 8;
  if ((ptys & 1U << 3) != 0) return 4;
  if ((ptys & 1U << 2) != 0) return 2;
  if ((ptys & 1U << 1) != 0) return 16;
  return 1;
}

std::uint8_t mtu_code(std::uint64_t bytes) {
  std::uint8_t code = 1;
  while (code < 5 && (256U << (code - 1)) < bytes) ++code;
  return code;
}

std::uint8_t vl_code(std::uint64_t data_vls) {
  switch (data_vls) {
    case 2:
      return 2;
    case 4:
      return 3;
    case 8:
      return 4;
    case 15:
      return 5;
    default:
      return 1;
  }
}

int query_link(CommandInterface& commands, std::uint8_t port, PortState& state) {
  std::uint8_t ptys[prm::PtysRegister::size];
  std::uint8_t pmtu[prm::PmtuRegister::size];
  std::uint8_t pvlc[prm::PvlcRegister::size];
  if (const int error =
          read_register<prm::PtysRegister>(commands, prm::RegisterId::ptys, port, ptys)) {
    return error;
  }
  if (const int error =
          read_register<prm::PmtuRegister>(commands, prm::RegisterId::pmtu, port, pmtu)) {
    return error;
  }
  if (const int error =
          read_register<prm::PvlcRegister>(commands, prm::RegisterId::pvlc, port, pvlc)) {
    return error;
  }
  state.active_width = width_code(prm::PtysRegister::ib_link_width_oper::get(ptys));
  state.active_speed = static_cast<std::uint16_t>(prm::PtysRegister::ib_proto_oper::get(ptys));
  state.max_mtu = mtu_code(prm::PmtuRegister::max_mtu::get(pmtu));
  state.active_mtu = mtu_code(prm::PmtuRegister::oper_mtu::get(pmtu));
  state.max_vls = vl_code(prm::PvlcRegister::vl_hw_cap::get(pvlc));
  return 0;
}

}  // namespace

int query_port_state(CommandInterface& commands, std::uint8_t port, PortState& state) {
  CommandInputBuffer in(CommandOpcode::query_hca_vport_context,
                        prm::QueryHcaVportContextInput::size);
  prm::QueryHcaVportContextInput::port_num::set(in.data(), port);
  std::uint8_t out[prm::QueryHcaVportContextOutput::size] = {};
  if (const CommandResult result = commands.execute(in, out); !result) return result.error;
  const std::uint8_t* const context =
      prm::QueryHcaVportContextOutput::hca_vport_context::at(static_cast<const std::uint8_t*>(out));
  using Vport = prm::HcaVportContext;
  state.node_guid = Vport::node_guid::get(context);
  state.system_image_guid = Vport::system_image_guid::get(context);
  state.port_guid = Vport::port_guid::get(context);
  state.capability_mask = static_cast<std::uint32_t>(Vport::cap_mask1::get(context));
  state.capability_mask2 = static_cast<std::uint16_t>(Vport::cap_mask2::get(context));
  state.lid = static_cast<std::uint16_t>(Vport::lid::get(context));
  state.lmc = static_cast<std::uint8_t>(Vport::lmc::get(context));
  state.sm_lid = static_cast<std::uint16_t>(Vport::sm_lid::get(context));
  state.sm_sl = static_cast<std::uint8_t>(Vport::sm_sl::get(context));
  state.state = static_cast<std::uint8_t>(Vport::vport_state::get(context));
  state.phys_state = static_cast<std::uint8_t>(Vport::port_physical_state::get(context));
  state.subnet_timeout = static_cast<std::uint8_t>(Vport::subnet_timeout::get(context));
  state.init_type_reply = static_cast<std::uint8_t>(Vport::init_type_reply::get(context));
  state.bad_pkey_counter = static_cast<std::uint16_t>(Vport::pkey_violation_counter::get(context));
  state.qkey_violation_counter =
      static_cast<std::uint16_t>(Vport::qkey_violation_counter::get(context));
  return query_link(commands, port, state);
}

int query_gids(CommandInterface& commands, std::uint8_t port, std::uint32_t count,
               std::vector<GidBytes>& gids) {
  CommandInputBuffer in(CommandOpcode::query_hca_vport_gid, prm::QueryHcaVportGidInput::size);
  prm::QueryHcaVportGidInput::port_num::set(in.data(), port);
  prm::QueryHcaVportGidInput::gid_index::set(in.data(), kWholeTable);
  std::vector<std::uint8_t> out(prm::QueryHcaVportGidOutput::gid_offset + count * 16);
  if (const CommandResult result = commands.execute(in, out); !result) return result.error;
  const std::uint64_t present =
      std::min<std::uint64_t>(prm::QueryHcaVportGidOutput::gids_num::get(out.data()), count);
  gids.assign(count, GidBytes{});
  for (std::uint64_t i = 0; i < present; ++i) {
    std::copy_n(out.data() + prm::QueryHcaVportGidOutput::gid_offset + i * 16, 16, gids[i].data());
  }
  return 0;
}

int query_pkeys(CommandInterface& commands, std::uint8_t port, std::uint32_t count,
                std::vector<std::uint16_t>& pkeys) {
  CommandInputBuffer in(CommandOpcode::query_hca_vport_pkey, prm::QueryHcaVportPkeyInput::size);
  prm::QueryHcaVportPkeyInput::port_num::set(in.data(), port);
  prm::QueryHcaVportPkeyInput::pkey_index::set(in.data(), kWholeTable);
  // One 32-bit word for each entry, the key in its lower half (mlx5_ifc_pkey_bits).
  std::vector<std::uint8_t> out(prm::QueryHcaVportPkeyOutput::pkey_offset + count * 4);
  if (const CommandResult result = commands.execute(in, out); !result) return result.error;
  pkeys.resize(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint8_t* const entry =
        out.data() + prm::QueryHcaVportPkeyOutput::pkey_offset + i * 4;
    pkeys[i] = static_cast<std::uint16_t>(entry[2] << 8 | entry[3]);
  }
  return 0;
}

}  // namespace softhca::shim
