// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/firmware/command_table.h"

#include <algorithm>
#include <array>

#include "hw-model/firmware/handlers.h"

namespace softhca {
namespace {

using prm::CommandOpcode;
constexpr HcaPhase kOff = HcaPhase::disabled;
constexpr HcaPhase kEnabled = HcaPhase::enabled;
constexpr HcaPhase kReady = HcaPhase::initialized;
constexpr bool kContexts = true;

/// Sizes are those of the PRM layouts without lists. ENABLE_HCA and DISABLE_HCA have 12 bytes of
/// output; 2ERR, 2RST and other short commands have no context.
constexpr auto kCommands = std::to_array<CommandRow>({
    {CommandOpcode::query_hca_cap, firmware::query_hca_cap, kEnabled, 16, 16, false},
    {CommandOpcode::query_adapter, firmware::query_adapter, kEnabled, 16, 0x110, false},
    {CommandOpcode::init_hca, firmware::init_hca, kEnabled, 16, 16, false},
    {CommandOpcode::teardown_hca, firmware::teardown_hca, kEnabled, 16, 16, false},
    {CommandOpcode::enable_hca, firmware::enable_hca, kOff, 16, 12, false},
    {CommandOpcode::disable_hca, firmware::disable_hca, kEnabled, 16, 12, false},
    {CommandOpcode::query_pages, firmware::query_pages, kEnabled, 16, 16, false},
    {CommandOpcode::manage_pages, firmware::manage_pages, kEnabled, 16, 16, true},
    {CommandOpcode::set_hca_cap, firmware::set_hca_cap, kEnabled, 0x1010, 16, false},
    {CommandOpcode::query_issi, firmware::query_issi, kEnabled, 16, 0x70, false},
    {CommandOpcode::set_issi, firmware::set_issi, kEnabled, 16, 16, false},
    {CommandOpcode::set_driver_version, firmware::set_driver_version, kEnabled, 0x50, 16, false},
    {CommandOpcode::create_mkey, firmware::create_mkey, kReady, 0x110, 16, kContexts},
    {CommandOpcode::query_mkey, firmware::query_mkey, kReady, 16, 0x110, false},
    {CommandOpcode::destroy_mkey, firmware::destroy_mkey, kReady, 16, 16, kContexts},
    {CommandOpcode::query_special_contexts, firmware::query_special_contexts, kReady, 16, 0x20,
     false},
    {CommandOpcode::create_eq, firmware::create_eq, kReady, 0x110, 16, false},
    {CommandOpcode::destroy_eq, firmware::destroy_eq, kReady, 16, 16, false},
    {CommandOpcode::query_eq, firmware::query_eq, kReady, 16, 0x110, false},
    {CommandOpcode::create_cq, firmware::create_cq, kReady, 0x110, 16, kContexts},
    {CommandOpcode::destroy_cq, firmware::destroy_cq, kReady, 16, 16, kContexts},
    {CommandOpcode::query_cq, firmware::query_cq, kReady, 16, 0x110, false},
    {CommandOpcode::modify_cq, firmware::modify_cq, kReady, 0x50, 16, false},
    {CommandOpcode::create_qp, firmware::create_qp, kReady, 0x110, 16, kContexts},
    {CommandOpcode::destroy_qp, firmware::destroy_qp, kReady, 16, 16, kContexts},
    {CommandOpcode::rst2init_qp, firmware::modify_qp, kReady, 0x100, 16, false},
    {CommandOpcode::init2rtr_qp, firmware::modify_qp, kReady, 0x100, 16, false},
    {CommandOpcode::rtr2rts_qp, firmware::modify_qp, kReady, 0x100, 16, false},
    {CommandOpcode::rts2rts_qp, firmware::modify_qp, kReady, 0x100, 16, false},
    {CommandOpcode::sqerr2rts_qp, firmware::modify_qp, kReady, 0x100, 16, false},
    {CommandOpcode::to_err_qp, firmware::modify_qp, kReady, 16, 16, false},
    {CommandOpcode::to_rst_qp, firmware::modify_qp, kReady, 16, 16, false},
    {CommandOpcode::query_qp, firmware::query_qp, kReady, 16, 0x100, false},
    {CommandOpcode::sqd_rts_qp, firmware::modify_qp, kReady, 0x100, 16, false},
    {CommandOpcode::init2init_qp, firmware::modify_qp, kReady, 0x100, 16, false},
    {CommandOpcode::mad_ifc, firmware::mad_ifc, kReady, 0x110, 0x110, false},
    {CommandOpcode::create_srq, firmware::create_srq, kReady, 0x110, 16, kContexts},
    {CommandOpcode::destroy_srq, firmware::destroy_srq, kReady, 16, 16, kContexts},
    {CommandOpcode::query_srq, firmware::query_srq, kReady, 16, 0x50, false},
    {CommandOpcode::arm_rq, firmware::arm_rq, kReady, 16, 16, false},
    {CommandOpcode::create_xrc_srq, firmware::create_xrc_srq, kReady, 0x110, 16, kContexts},
    {CommandOpcode::destroy_xrc_srq, firmware::destroy_xrc_srq, kReady, 16, 16, kContexts},
    {CommandOpcode::query_xrc_srq, firmware::query_xrc_srq, kReady, 16, 0x50, false},
    {CommandOpcode::arm_xrc_srq, firmware::arm_xrc_srq, kReady, 16, 16, false},
    {CommandOpcode::query_hca_vport_context, firmware::query_hca_vport_context, kReady, 16, 0x210,
     false},
    {CommandOpcode::modify_hca_vport_context, firmware::modify_hca_vport_context, kReady, 0x210, 16,
     false},
    {CommandOpcode::query_hca_vport_gid, firmware::query_hca_vport_gid, kReady, 16, 16, false},
    {CommandOpcode::query_hca_vport_pkey, firmware::query_hca_vport_pkey, kReady, 16, 16, false},
    {CommandOpcode::query_vport_state, firmware::query_vport_state, kReady, 16, 16, false},
    {CommandOpcode::alloc_q_counter, firmware::alloc_q_counter, kReady, 16, 16, false},
    {CommandOpcode::dealloc_q_counter, firmware::dealloc_q_counter, kReady, 16, 16, false},
    {CommandOpcode::query_q_counter, firmware::query_q_counter, kReady, 0x20, 0x100, false},
    {CommandOpcode::alloc_pd, firmware::alloc_pd, kReady, 16, 16, false},
    {CommandOpcode::dealloc_pd, firmware::dealloc_pd, kReady, 16, 16, false},
    {CommandOpcode::alloc_uar, firmware::alloc_uar, kReady, 16, 16, false},
    {CommandOpcode::dealloc_uar, firmware::dealloc_uar, kReady, 16, 16, false},
    {CommandOpcode::access_reg, firmware::access_register, kEnabled, 16, 16, false},
    {CommandOpcode::attach_to_mcg, firmware::attach_to_mcg, kReady, 0x20, 16, false},
    {CommandOpcode::detach_from_mcg, firmware::detach_from_mcg, kReady, 0x20, 16, false},
    {CommandOpcode::nop, firmware::nop, kEnabled, 8, 8, false},
    {CommandOpcode::alloc_xrcd, firmware::alloc_xrcd, kReady, 16, 16, false},
    {CommandOpcode::dealloc_xrcd, firmware::dealloc_xrcd, kReady, 16, 16, false},
    {CommandOpcode::alloc_transport_domain, firmware::alloc_transport_domain, kReady, 16, 16,
     false},
    {CommandOpcode::dealloc_transport_domain, firmware::dealloc_transport_domain, kReady, 16, 16,
     false},
    {CommandOpcode::create_sq, firmware::create_sq, kReady, 0x110, 16, kContexts},
    {CommandOpcode::modify_sq, firmware::modify_sq, kReady, 0x110, 16, false},
    {CommandOpcode::destroy_sq, firmware::destroy_sq, kReady, 16, 16, kContexts},
    {CommandOpcode::query_sq, firmware::query_sq, kReady, 16, 0x110, false},
    {CommandOpcode::create_rmp, firmware::create_rmp, kReady, 0x110, 16, kContexts},
    {CommandOpcode::modify_rmp, firmware::modify_rmp, kReady, 0x110, 16, false},
    {CommandOpcode::destroy_rmp, firmware::destroy_rmp, kReady, 16, 16, kContexts},
    {CommandOpcode::query_rmp, firmware::query_rmp, kReady, 16, 0x110, false},
    {CommandOpcode::create_uctx, firmware::create_uctx, kReady, 16, 16, false},
    {CommandOpcode::destroy_uctx, firmware::destroy_uctx, kReady, 16, 16, false},
});

}  // namespace

const CommandRow* find_command(std::uint16_t opcode) {
  const auto* row =
      std::find_if(kCommands.begin(), kCommands.end(), [opcode](const CommandRow& candidate) {
        return static_cast<std::uint16_t>(candidate.opcode) == opcode;
      });
  return row == kCommands.end() ? nullptr : row;
}

}  // namespace softhca
