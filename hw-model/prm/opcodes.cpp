// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/prm/opcodes.h"

namespace softhca::prm {

std::string_view command_name(std::uint16_t opcode) {
  switch (static_cast<CommandOpcode>(opcode)) {
    case CommandOpcode::query_hca_cap:
      return "QUERY_HCA_CAP";
    case CommandOpcode::query_adapter:
      return "QUERY_ADAPTER";
    case CommandOpcode::init_hca:
      return "INIT_HCA";
    case CommandOpcode::teardown_hca:
      return "TEARDOWN_HCA";
    case CommandOpcode::enable_hca:
      return "ENABLE_HCA";
    case CommandOpcode::disable_hca:
      return "DISABLE_HCA";
    case CommandOpcode::query_pages:
      return "QUERY_PAGES";
    case CommandOpcode::manage_pages:
      return "MANAGE_PAGES";
    case CommandOpcode::set_hca_cap:
      return "SET_HCA_CAP";
    case CommandOpcode::query_issi:
      return "QUERY_ISSI";
    case CommandOpcode::set_issi:
      return "SET_ISSI";
    case CommandOpcode::set_driver_version:
      return "SET_DRIVER_VERSION";
    case CommandOpcode::create_mkey:
      return "CREATE_MKEY";
    case CommandOpcode::query_mkey:
      return "QUERY_MKEY";
    case CommandOpcode::destroy_mkey:
      return "DESTROY_MKEY";
    case CommandOpcode::query_special_contexts:
      return "QUERY_SPECIAL_CONTEXTS";
    case CommandOpcode::create_eq:
      return "CREATE_EQ";
    case CommandOpcode::destroy_eq:
      return "DESTROY_EQ";
    case CommandOpcode::query_eq:
      return "QUERY_EQ";
    case CommandOpcode::gen_eqe:
      return "GEN_EQE";
    case CommandOpcode::create_cq:
      return "CREATE_CQ";
    case CommandOpcode::destroy_cq:
      return "DESTROY_CQ";
    case CommandOpcode::query_cq:
      return "QUERY_CQ";
    case CommandOpcode::modify_cq:
      return "MODIFY_CQ";
    case CommandOpcode::create_qp:
      return "CREATE_QP";
    case CommandOpcode::destroy_qp:
      return "DESTROY_QP";
    case CommandOpcode::rst2init_qp:
      return "RST2INIT_QP";
    case CommandOpcode::init2rtr_qp:
      return "INIT2RTR_QP";
    case CommandOpcode::rtr2rts_qp:
      return "RTR2RTS_QP";
    case CommandOpcode::rts2rts_qp:
      return "RTS2RTS_QP";
    case CommandOpcode::sqerr2rts_qp:
      return "SQERR2RTS_QP";
    case CommandOpcode::to_err_qp:
      return "2ERR_QP";
    case CommandOpcode::to_rst_qp:
      return "2RST_QP";
    case CommandOpcode::query_qp:
      return "QUERY_QP";
    case CommandOpcode::sqd_rts_qp:
      return "SQD_RTS_QP";
    case CommandOpcode::init2init_qp:
      return "INIT2INIT_QP";
    case CommandOpcode::mad_ifc:
      return "MAD_IFC";
    case CommandOpcode::create_srq:
      return "CREATE_SRQ";
    case CommandOpcode::destroy_srq:
      return "DESTROY_SRQ";
    case CommandOpcode::query_srq:
      return "QUERY_SRQ";
    case CommandOpcode::arm_rq:
      return "ARM_RQ";
    case CommandOpcode::create_xrc_srq:
      return "CREATE_XRC_SRQ";
    case CommandOpcode::destroy_xrc_srq:
      return "DESTROY_XRC_SRQ";
    case CommandOpcode::query_xrc_srq:
      return "QUERY_XRC_SRQ";
    case CommandOpcode::arm_xrc_srq:
      return "ARM_XRC_SRQ";
    case CommandOpcode::create_dct:
      return "CREATE_DCT";
    case CommandOpcode::destroy_dct:
      return "DESTROY_DCT";
    case CommandOpcode::query_hca_vport_context:
      return "QUERY_HCA_VPORT_CONTEXT";
    case CommandOpcode::modify_hca_vport_context:
      return "MODIFY_HCA_VPORT_CONTEXT";
    case CommandOpcode::query_hca_vport_gid:
      return "QUERY_HCA_VPORT_GID";
    case CommandOpcode::query_hca_vport_pkey:
      return "QUERY_HCA_VPORT_PKEY";
    case CommandOpcode::query_vport_state:
      return "QUERY_VPORT_STATE";
    case CommandOpcode::query_vport_counter:
      return "QUERY_VPORT_COUNTER";
    case CommandOpcode::alloc_q_counter:
      return "ALLOC_Q_COUNTER";
    case CommandOpcode::dealloc_q_counter:
      return "DEALLOC_Q_COUNTER";
    case CommandOpcode::query_q_counter:
      return "QUERY_Q_COUNTER";
    case CommandOpcode::alloc_pd:
      return "ALLOC_PD";
    case CommandOpcode::dealloc_pd:
      return "DEALLOC_PD";
    case CommandOpcode::alloc_uar:
      return "ALLOC_UAR";
    case CommandOpcode::dealloc_uar:
      return "DEALLOC_UAR";
    case CommandOpcode::config_int_moderation:
      return "CONFIG_INT_MODERATION";
    case CommandOpcode::access_reg:
      return "ACCESS_REG";
    case CommandOpcode::attach_to_mcg:
      return "ATTACH_TO_MCG";
    case CommandOpcode::detach_from_mcg:
      return "DETACH_FROM_MCG";
    case CommandOpcode::nop:
      return "NOP";
    case CommandOpcode::alloc_xrcd:
      return "ALLOC_XRCD";
    case CommandOpcode::dealloc_xrcd:
      return "DEALLOC_XRCD";
    case CommandOpcode::alloc_transport_domain:
      return "ALLOC_TRANSPORT_DOMAIN";
    case CommandOpcode::dealloc_transport_domain:
      return "DEALLOC_TRANSPORT_DOMAIN";
    case CommandOpcode::create_sq:
      return "CREATE_SQ";
    case CommandOpcode::modify_sq:
      return "MODIFY_SQ";
    case CommandOpcode::destroy_sq:
      return "DESTROY_SQ";
    case CommandOpcode::query_sq:
      return "QUERY_SQ";
    case CommandOpcode::create_rmp:
      return "CREATE_RMP";
    case CommandOpcode::modify_rmp:
      return "MODIFY_RMP";
    case CommandOpcode::destroy_rmp:
      return "DESTROY_RMP";
    case CommandOpcode::query_rmp:
      return "QUERY_RMP";
    case CommandOpcode::create_uctx:
      return "CREATE_UCTX";
    case CommandOpcode::destroy_uctx:
      return "DESTROY_UCTX";
    case CommandOpcode::create_umem:
      return "CREATE_UMEM";
    case CommandOpcode::destroy_umem:
      return "DESTROY_UMEM";
  }
  return "UNKNOWN";
}

std::string_view command_status_name(std::uint8_t status) {
  switch (static_cast<CommandStatus>(status)) {
    case CommandStatus::ok:
      return "ok";
    case CommandStatus::internal_error:
      return "internal error";
    case CommandStatus::bad_opcode:
      return "bad opcode";
    case CommandStatus::bad_parameter:
      return "bad parameter";
    case CommandStatus::bad_system_state:
      return "bad system state";
    case CommandStatus::bad_resource:
      return "bad resource";
    case CommandStatus::resource_busy:
      return "resource busy";
    case CommandStatus::exceeds_limit:
      return "exceeds limit";
    case CommandStatus::bad_resource_state:
      return "bad resource state";
    case CommandStatus::bad_index:
      return "bad index";
    case CommandStatus::no_resources:
      return "no resources";
    case CommandStatus::bad_input_length:
      return "bad input length";
    case CommandStatus::bad_output_length:
      return "bad output length";
    case CommandStatus::bad_qp_state:
      return "bad qp state";
    case CommandStatus::bad_packet:
      return "bad packet";
    case CommandStatus::bad_size_outstanding_cqes:
      return "bad size outstanding cqes";
  }
  return "unknown status";
}

}  // namespace softhca::prm
