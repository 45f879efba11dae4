// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include "hw-model/prm/field.h"

namespace softhca::prm {

// Commands that start, stop and describe the HCA. Inputs begin with CommandInput, outputs with
// CommandOutput; commands without a layout here carry nothing else.

/// ENABLE_HCA 0x104: input.
struct EnableHcaInput {
  static constexpr std::size_t size = 0x10;

  using function_id = Field<0x50, 16>;  ///< 0: the function itself.
};

/// DISABLE_HCA 0x105: input.
struct DisableHcaInput {
  static constexpr std::size_t size = 0x10;

  using function_id = Field<0x50, 16>;  ///< 0: the function itself.
};

/// QUERY_ISSI 0x10a: output.
struct QueryIssiOutput {
  static constexpr std::size_t size = 0x70;

  using current_issi = Field<0x50, 16>;
  using supported_issi_dw0 = Field<0x360, 32>;  ///< Bit n: ISSI n is supported.
};

/// SET_ISSI 0x10b: input.
struct SetIssiInput {
  static constexpr std::size_t size = 0x10;

  using current_issi = Field<0x50, 16>;
};

/// QUERY_PAGES 0x107, op_mod 1 boot, 2 init, 3 regular: input.
struct QueryPagesInput {
  static constexpr std::size_t size = 0x10;

  using function_id = Field<0x50, 16>;  ///< 0: the function itself.
};

/// QUERY_PAGES 0x107, op_mod 1 boot, 2 init, 3 regular: output.
struct QueryPagesOutput {
  static constexpr std::size_t size = 0x10;

  using function_id = Field<0x50, 16>;  ///< 0: the function itself.
  using num_pages =
      Field<0x60, 32>;  ///< Signed: pages wanted, negative when some can be taken back.
};

/// MANAGE_PAGES 0x108, op_mod 0 cannot give, 1 give, 2 take: input.
struct ManagePagesInput {
  static constexpr std::size_t size = 0x10;

  using function_id = Field<0x50, 16>;        ///< 0: the function itself.
  using input_num_entries = Field<0x60, 32>;  ///< Entries that follow.
  static constexpr std::size_t pas_offset = 0x10;
};

/// MANAGE_PAGES 0x108, op_mod 0 cannot give, 1 give, 2 take: output.
struct ManagePagesOutput {
  static constexpr std::size_t size = 0x10;

  using output_num_entries = Field<0x40, 32>;  ///< Entries that follow.
  static constexpr std::size_t pas_offset = 0x10;
};

/// QUERY_HCA_CAP 0x100, op_mod HcaCapType << 1 | current: input.
struct QueryHcaCapInput {
  static constexpr std::size_t size = 0x10;

  using other_function = Field<0x40, 1>;
  using function_id = Field<0x50, 16>;  ///< 0: the function itself.
};

/// QUERY_HCA_CAP 0x100, op_mod HcaCapType << 1 | current: output.
struct QueryHcaCapOutput {
  static constexpr std::size_t size = 0x1010;

  using capability = Block<0x10, 0x1000>;
};

/// SET_HCA_CAP 0x109, op_mod HcaCapType << 1: input.
struct SetHcaCapInput {
  static constexpr std::size_t size = 0x1010;

  using other_function = Field<0x40, 1>;
  using function_id = Field<0x50, 16>;  ///< 0: the function itself.
  using capability = Block<0x10, 0x1000>;
};

/// INIT_HCA 0x102: input.
struct InitHcaInput {
  static constexpr std::size_t size = 0x20;

  using sw_vhca_id = Field<0x62, 14>;
  using sw_owner_id = Block<0x10, 0x10>;
};

/// TEARDOWN_HCA 0x103: input.
struct TeardownHcaInput {
  static constexpr std::size_t size = 0x10;

  using profile = Field<0x50, 16>;  ///< 0 graceful, 1 force, 2 prepare fast.
};

/// TEARDOWN_HCA 0x103: output.
struct TeardownHcaOutput {
  static constexpr std::size_t size = 0x10;

  using state = Field<0x7f, 1>;  ///< 1: force or fast teardown failed.
};

/// QUERY_ADAPTER 0x101: output.
struct QueryAdapterOutput {
  static constexpr std::size_t size = 0x110;

  using query_adapter_struct = Block<0x10, 0x100>;
};

/// QUERY_SPECIAL_CONTEXTS 0x203: output.
struct QuerySpecialContextsOutput {
  static constexpr std::size_t size = 0x20;

  using dump_fill_mkey = Field<0x40, 32>;
  using resd_lkey = Field<0x60, 32>;  ///< Reserved L_Key.
  using null_mkey = Field<0x80, 32>;
};

/// SET_DRIVER_VERSION 0x10d: input.
struct SetDriverVersionInput {
  static constexpr std::size_t size = 0x50;

  using driver_version = Block<0x10, 0x40>;  ///< Text, zero terminated.
};

/// ACCESS_REG 0x805, op_mod 0 write, 1 read: input.
struct AccessRegisterInput {
  static constexpr std::size_t size = 0x10;

  using register_id = Field<0x50, 16>;  ///< RegisterId.
  using argument = Field<0x60, 32>;
  static constexpr std::size_t register_data_offset = 0x10;
};

/// ACCESS_REG 0x805, op_mod 0 write, 1 read: output.
struct AccessRegisterOutput {
  static constexpr std::size_t size = 0x10;

  static constexpr std::size_t register_data_offset = 0x10;
};

/// MAD_IFC 0x50d, op_mod bit 0: do not check M_Key, bit 1: do not check B_Key: input.
struct MadIfcInput {
  static constexpr std::size_t size = 0x110;

  using remote_lid = Field<0x40, 16>;
  using port = Field<0x58, 8>;
  using mad = Block<0x10, 0x100>;  ///< Request.
};

/// MAD_IFC 0x50d, op_mod bit 0: do not check M_Key, bit 1: do not check B_Key: output.
struct MadIfcOutput {
  static constexpr std::size_t size = 0x110;

  using response_mad_packet = Block<0x10, 0x100>;  ///< Reply.
};

/// CREATE_UCTX 0xa04: input.
struct CreateUctxInput {
  static constexpr std::size_t size = 0x40;

  using uctx = Block<0x10, 0x30>;
};

/// CREATE_UCTX 0xa04: output.
struct CreateUctxOutput {
  static constexpr std::size_t size = 0x10;

  using uid = Field<0x50, 16>;
};

/// DESTROY_UCTX 0xa06: input.
struct DestroyUctxInput {
  static constexpr std::size_t size = 0x10;

  using uid = Field<0x50, 16>;
};

/// QUERY_VPORT_STATE 0x750: input.
struct QueryVportStateInput {
  static constexpr std::size_t size = 0x10;

  using other_vport = Field<0x40, 1>;
  using vport_number = Field<0x50, 16>;
};

/// QUERY_VPORT_STATE 0x750: output.
struct QueryVportStateOutput {
  static constexpr std::size_t size = 0x10;

  using admin_state = Field<0x78, 4>;
  using state = Field<0x7c, 4>;
};

/// QUERY_HCA_VPORT_CONTEXT 0x762: input.
struct QueryHcaVportContextInput {
  static constexpr std::size_t size = 0x10;

  using other_vport = Field<0x40, 1>;
  using port_num = Field<0x4c, 4>;
  using vport_number = Field<0x50, 16>;
};

/// QUERY_HCA_VPORT_CONTEXT 0x762: output.
struct QueryHcaVportContextOutput {
  static constexpr std::size_t size = 0x210;

  using hca_vport_context = Block<0x10, 0x200>;
};

/// MODIFY_HCA_VPORT_CONTEXT 0x763: input.
struct ModifyHcaVportContextInput {
  static constexpr std::size_t size = 0x210;

  using other_vport = Field<0x40, 1>;
  using port_num = Field<0x4c, 4>;
  using vport_number = Field<0x50, 16>;
  using hca_vport_context = Block<0x10, 0x200>;
};

/// QUERY_HCA_VPORT_GID 0x764: input.
struct QueryHcaVportGidInput {
  static constexpr std::size_t size = 0x10;

  using other_vport = Field<0x40, 1>;
  using port_num = Field<0x4c, 4>;
  using vport_number = Field<0x50, 16>;
  using gid_index = Field<0x70, 16>;  ///< 0xffff: the whole table.
};

/// QUERY_HCA_VPORT_GID 0x764: output.
struct QueryHcaVportGidOutput {
  static constexpr std::size_t size = 0x10;

  using gids_num = Field<0x60, 16>;
  static constexpr std::size_t gid_offset = 0x10;
};

/// QUERY_HCA_VPORT_PKEY 0x765: input.
struct QueryHcaVportPkeyInput {
  static constexpr std::size_t size = 0x10;

  using other_vport = Field<0x40, 1>;
  using port_num = Field<0x4c, 4>;
  using vport_number = Field<0x50, 16>;
  using pkey_index = Field<0x70, 16>;  ///< 0xffff: the whole table.
};

/// QUERY_HCA_VPORT_PKEY 0x765: output.
struct QueryHcaVportPkeyOutput {
  static constexpr std::size_t size = 0x10;

  static constexpr std::size_t pkey_offset = 0x10;
};

/// QUERY_ADAPTER: parameter block.
struct AdapterParameters {
  static constexpr std::size_t size = 0x100;

  using ieee_vendor_id = Field<0xc8, 24>;  ///< OUI.
  using vsd_vendor_id = Field<0xf0, 16>;
  using vsd = Block<0x20, 0xd0>;
  using vsd_contd_psid = Block<0xf0, 0x10>;  ///< PSID (board identity), text.
};

/// MANAGE_PAGES op_mod.
enum class ManagePagesOp : std::uint16_t { cannot_give = 0, give = 1, take = 2 };
/// QUERY_PAGES op_mod.
enum class QueryPagesOp : std::uint16_t { boot = 1, init = 2, regular = 3 };

}  // namespace softhca::prm
