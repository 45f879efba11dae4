// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <string_view>

#include "hw-model/firmware/command.h"

namespace softhca {

/// CommandOutput::syndrome: why exactly a command failed. Drivers print the word, so each cause has
/// its own. The high half is 0x5f00 to be recognised in a log.
enum class Syndrome : std::uint32_t {
  none = 0,
  // Interpreter.
  unknown_opcode = 0x5f000001,
  not_supported = 0x5f000002,
  hca_disabled = 0x5f000003,
  hca_not_initialized = 0x5f000004,
  hca_already_initialized = 0x5f000005,
  input_too_short = 0x5f000006,
  output_too_short = 0x5f000007,
  bad_op_mod = 0x5f000008,
  other_function = 0x5f000009,
  bad_user_context = 0x5f00000a,
  device_failed = 0x5f00000b,
  // HCA.
  bad_issi = 0x5f000101,
  boot_pages_missing = 0x5f000102,
  init_pages_missing = 0x5f000103,
  bad_page_address = 0x5f000104,
  page_given_twice = 0x5f000105,
  bad_page_count = 0x5f000106,
  bad_cap_type = 0x5f000107,
  cap_above_maximum = 0x5f000108,
  unknown_register = 0x5f000109,
  register_read_only = 0x5f00010a,
  bad_register_value = 0x5f00010b,
  bad_port = 0x5f00010c,
  bad_vport = 0x5f00010d,
  bad_gid_index = 0x5f00010e,
  bad_pkey_index = 0x5f00010f,
  no_mad_agent = 0x5f000110,
  bad_profile = 0x5f000111,
  pages_withheld = 0x5f000112,
  field_not_selectable = 0x5f000113,
  too_many_pages = 0x5f000114,
  bad_m_key = 0x5f000115,
  // Numbered resources.
  out_of_uars = 0x5f000201,
  out_of_pds = 0x5f000202,
  out_of_xrcds = 0x5f000203,
  out_of_transport_domains = 0x5f000204,
  out_of_user_contexts = 0x5f000205,
  out_of_counters = 0x5f000206,
  no_such_uar = 0x5f000211,
  no_such_pd = 0x5f000212,
  no_such_xrcd = 0x5f000213,
  no_such_transport_domain = 0x5f000214,
  no_such_user_context = 0x5f000215,
  no_such_counter = 0x5f000216,
  uar_in_use = 0x5f000221,
  pd_in_use = 0x5f000222,
  xrcd_in_use = 0x5f000223,
  user_context_in_use = 0x5f000224,
  out_of_multicast_groups = 0x5f000231,
  not_attached = 0x5f000232,
  not_multicast = 0x5f000233,
  // Queue memory, common to all queues.
  bad_queue_size = 0x5f000301,
  bad_page_size = 0x5f000302,
  too_few_pages = 0x5f000303,
  bad_page_alignment = 0x5f000304,
  bad_doorbell_record = 0x5f000305,
  umem_not_supported = 0x5f000306,
  // Event queues.
  out_of_eqs = 0x5f000401,
  no_such_eq = 0x5f000402,
  eq_in_use = 0x5f000403,
  bad_vector = 0x5f000404,
  // Completion queues.
  out_of_cqs = 0x5f000501,
  no_such_cq = 0x5f000502,
  cq_in_use = 0x5f000503,
  bad_cqe_size = 0x5f000504,
  cq_too_small_for_contents = 0x5f000505,
  bad_modify_field = 0x5f000506,
  // Memory keys.
  out_of_mkeys = 0x5f000601,
  no_such_mkey = 0x5f000602,
  mkey_in_use = 0x5f000603,
  bad_access_mode = 0x5f000604,
  bad_mkey_page_size = 0x5f000605,
  translation_too_small = 0x5f000606,
  address_range_wraps = 0x5f000607,
  bad_mkey_qpn = 0x5f000609,
  // Queue pairs.
  out_of_qps = 0x5f000701,
  no_such_qp = 0x5f000702,
  qp_in_use = 0x5f000703,
  bad_service_type = 0x5f000704,
  bad_receive_queue_type = 0x5f000705,
  bad_qp_transition = 0x5f000706,
  bad_mtu = 0x5f000707,
  bad_rd_atomic = 0x5f000708,
  bad_path_migration = 0x5f000709,
  special_qp_taken = 0x5f00070a,
  bad_optional_parameter = 0x5f00070b,
  bad_remote_qpn = 0x5f00070c,
  bad_max_message = 0x5f00070d,
  bad_ack_timeout = 0x5f00070e,
  // Shared receive queues.
  out_of_srqs = 0x5f000801,
  no_such_srq = 0x5f000802,
  srq_in_use = 0x5f000803,
  bad_wq_type = 0x5f000804,
  bad_wqe_stride = 0x5f000805,
  bad_limit = 0x5f000806,
};

/// A sentence for logs and status.
std::string_view syndrome_text(Syndrome syndrome);

/// A failed result.
constexpr CommandResult failure(prm::CommandStatus status, Syndrome syndrome) {
  return {status, static_cast<std::uint32_t>(syndrome)};
}

}  // namespace softhca
