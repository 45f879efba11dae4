// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include "hw-model/firmware/command.h"
#include "hw-model/firmware/firmware_state.h"

/// Handlers of firmware commands, named by their command. Each checks its arguments, changes the
/// state and fills the output; lengths and phase have been checked by the interpreter
/// (command_table.cpp).
namespace softhca::firmware {

// commands/hca.cpp
CommandResult enable_hca(FirmwareState& state, const Command& command);
CommandResult disable_hca(FirmwareState& state, const Command& command);
CommandResult init_hca(FirmwareState& state, const Command& command);
CommandResult teardown_hca(FirmwareState& state, const Command& command);
CommandResult query_issi(FirmwareState& state, const Command& command);
CommandResult set_issi(FirmwareState& state, const Command& command);
CommandResult set_driver_version(FirmwareState& state, const Command& command);
CommandResult nop(FirmwareState& state, const Command& command);

// commands/pages.cpp
CommandResult query_pages(FirmwareState& state, const Command& command);
CommandResult manage_pages(FirmwareState& state, const Command& command);

// commands/capabilities.cpp
CommandResult query_hca_cap(FirmwareState& state, const Command& command);
CommandResult set_hca_cap(FirmwareState& state, const Command& command);
CommandResult query_adapter(FirmwareState& state, const Command& command);
CommandResult query_special_contexts(FirmwareState& state, const Command& command);

// commands/access_registers.cpp
CommandResult access_register(FirmwareState& state, const Command& command);

// commands/vport.cpp
CommandResult query_hca_vport_context(FirmwareState& state, const Command& command);
CommandResult modify_hca_vport_context(FirmwareState& state, const Command& command);
CommandResult query_hca_vport_gid(FirmwareState& state, const Command& command);
CommandResult query_hca_vport_pkey(FirmwareState& state, const Command& command);
CommandResult query_vport_state(FirmwareState& state, const Command& command);
CommandResult mad_ifc(FirmwareState& state, const Command& command);

// commands/resources.cpp
CommandResult alloc_uar(FirmwareState& state, const Command& command);
CommandResult dealloc_uar(FirmwareState& state, const Command& command);
CommandResult alloc_pd(FirmwareState& state, const Command& command);
CommandResult dealloc_pd(FirmwareState& state, const Command& command);
CommandResult alloc_xrcd(FirmwareState& state, const Command& command);
CommandResult dealloc_xrcd(FirmwareState& state, const Command& command);
CommandResult alloc_transport_domain(FirmwareState& state, const Command& command);
CommandResult dealloc_transport_domain(FirmwareState& state, const Command& command);
CommandResult create_uctx(FirmwareState& state, const Command& command);
CommandResult destroy_uctx(FirmwareState& state, const Command& command);

// commands/q_counters.cpp
CommandResult alloc_q_counter(FirmwareState& state, const Command& command);
CommandResult dealloc_q_counter(FirmwareState& state, const Command& command);
CommandResult query_q_counter(FirmwareState& state, const Command& command);

// commands/sq.cpp
CommandResult create_sq(FirmwareState& state, const Command& command);
CommandResult modify_sq(FirmwareState& state, const Command& command);
CommandResult destroy_sq(FirmwareState& state, const Command& command);
CommandResult query_sq(FirmwareState& state, const Command& command);

// commands/eq.cpp
CommandResult create_eq(FirmwareState& state, const Command& command);
CommandResult destroy_eq(FirmwareState& state, const Command& command);
CommandResult query_eq(FirmwareState& state, const Command& command);

// commands/cq.cpp
CommandResult create_cq(FirmwareState& state, const Command& command);
CommandResult destroy_cq(FirmwareState& state, const Command& command);
CommandResult query_cq(FirmwareState& state, const Command& command);
CommandResult modify_cq(FirmwareState& state, const Command& command);

// commands/mkey.cpp
CommandResult create_mkey(FirmwareState& state, const Command& command);
CommandResult destroy_mkey(FirmwareState& state, const Command& command);
CommandResult query_mkey(FirmwareState& state, const Command& command);

// commands/qp_create.cpp, qp_modify.cpp, qp_query.cpp
CommandResult create_qp(FirmwareState& state, const Command& command);
CommandResult destroy_qp(FirmwareState& state, const Command& command);
CommandResult modify_qp(FirmwareState& state, const Command& command);
CommandResult query_qp(FirmwareState& state, const Command& command);

// commands/srq.cpp, rmp.cpp
CommandResult create_srq(FirmwareState& state, const Command& command);
CommandResult destroy_srq(FirmwareState& state, const Command& command);
CommandResult query_srq(FirmwareState& state, const Command& command);
CommandResult arm_rq(FirmwareState& state, const Command& command);
CommandResult create_xrc_srq(FirmwareState& state, const Command& command);
CommandResult destroy_xrc_srq(FirmwareState& state, const Command& command);
CommandResult query_xrc_srq(FirmwareState& state, const Command& command);
CommandResult arm_xrc_srq(FirmwareState& state, const Command& command);
CommandResult create_rmp(FirmwareState& state, const Command& command);
CommandResult modify_rmp(FirmwareState& state, const Command& command);
CommandResult destroy_rmp(FirmwareState& state, const Command& command);
CommandResult query_rmp(FirmwareState& state, const Command& command);

// commands/multicast.cpp
CommandResult attach_to_mcg(FirmwareState& state, const Command& command);
CommandResult detach_from_mcg(FirmwareState& state, const Command& command);

}  // namespace softhca::firmware
