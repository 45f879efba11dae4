// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <string_view>

#include "hw-model/prm/field.h"

namespace softhca::prm {

/// Command opcodes (CommandInput::opcode).
enum class CommandOpcode : std::uint16_t {
  query_hca_cap = 0x100,
  query_adapter = 0x101,
  init_hca = 0x102,
  teardown_hca = 0x103,
  enable_hca = 0x104,
  disable_hca = 0x105,
  query_pages = 0x107,
  manage_pages = 0x108,
  set_hca_cap = 0x109,
  query_issi = 0x10a,
  set_issi = 0x10b,
  set_driver_version = 0x10d,
  create_mkey = 0x200,
  query_mkey = 0x201,
  destroy_mkey = 0x202,
  query_special_contexts = 0x203,
  create_eq = 0x301,
  destroy_eq = 0x302,
  query_eq = 0x303,
  gen_eqe = 0x304,
  create_cq = 0x400,
  destroy_cq = 0x401,
  query_cq = 0x402,
  modify_cq = 0x403,
  create_qp = 0x500,
  destroy_qp = 0x501,
  rst2init_qp = 0x502,
  init2rtr_qp = 0x503,
  rtr2rts_qp = 0x504,
  rts2rts_qp = 0x505,
  sqerr2rts_qp = 0x506,
  to_err_qp = 0x507,
  to_rst_qp = 0x50a,
  query_qp = 0x50b,
  sqd_rts_qp = 0x50c,
  init2init_qp = 0x50e,
  mad_ifc = 0x50d,
  create_srq = 0x700,
  destroy_srq = 0x701,
  query_srq = 0x702,
  arm_rq = 0x703,
  create_xrc_srq = 0x705,
  destroy_xrc_srq = 0x706,
  query_xrc_srq = 0x707,
  arm_xrc_srq = 0x708,
  create_dct = 0x710,
  destroy_dct = 0x711,
  query_hca_vport_context = 0x762,
  modify_hca_vport_context = 0x763,
  query_hca_vport_gid = 0x764,
  query_hca_vport_pkey = 0x765,
  query_vport_state = 0x750,
  query_vport_counter = 0x770,
  alloc_q_counter = 0x771,
  dealloc_q_counter = 0x772,
  query_q_counter = 0x773,
  alloc_pd = 0x800,
  dealloc_pd = 0x801,
  alloc_uar = 0x802,
  dealloc_uar = 0x803,
  config_int_moderation = 0x804,
  access_reg = 0x805,
  attach_to_mcg = 0x806,
  detach_from_mcg = 0x807,
  nop = 0x80d,
  alloc_xrcd = 0x80e,
  dealloc_xrcd = 0x80f,
  alloc_transport_domain = 0x816,
  dealloc_transport_domain = 0x817,
  create_sq = 0x904,
  modify_sq = 0x905,
  destroy_sq = 0x906,
  query_sq = 0x907,
  create_rmp = 0x90c,
  modify_rmp = 0x90d,
  destroy_rmp = 0x90e,
  query_rmp = 0x90f,
  create_uctx = 0xa04,
  destroy_uctx = 0xa06,
  create_umem = 0xa08,
  destroy_umem = 0xa0a,
};

/// CommandOutput::status: what became of a command that was delivered.
enum class CommandStatus : std::uint8_t {
  ok = 0x0,
  internal_error = 0x1,
  bad_opcode = 0x2,
  bad_parameter = 0x3,
  bad_system_state = 0x4,  ///< Command not allowed in this state of the HCA.
  bad_resource = 0x5,      ///< The object does not exist.
  resource_busy = 0x6,     ///< The object is in use.
  exceeds_limit = 0x8,
  bad_resource_state = 0x9,  ///< The object exists, its state forbids the command.
  bad_index = 0xa,
  no_resources = 0xf,
  bad_input_length = 0x50,
  bad_output_length = 0x51,
  bad_qp_state = 0x10,
  bad_packet = 0x30,
  bad_size_outstanding_cqes = 0x40,
};

/// Name of a command as the PRM writes it ("CREATE_QP"), or "UNKNOWN".
std::string_view command_name(std::uint16_t opcode);
/// Name of a command status.
std::string_view command_status_name(std::uint8_t status);

}  // namespace softhca::prm
