// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include "hw-model/prm/field.h"

namespace softhca::prm {

// Commands that allocate numbered resources without a context of their own.

/// ALLOC_UAR 0x802: output.
struct AllocUarOutput {
  static constexpr std::size_t size = 0x10;

  using uar = Field<0x48, 24>;  ///< Page of BAR0.
};

/// DEALLOC_UAR 0x803: input.
struct DeallocUarInput {
  static constexpr std::size_t size = 0x10;

  using uar = Field<0x48, 24>;
};

/// ALLOC_PD 0x800: output.
struct AllocPdOutput {
  static constexpr std::size_t size = 0x10;

  using pd = Field<0x48, 24>;
};

/// DEALLOC_PD 0x801: input.
struct DeallocPdInput {
  static constexpr std::size_t size = 0x10;

  using pd = Field<0x48, 24>;
};

/// ALLOC_XRCD 0x80e: output.
struct AllocXrcdOutput {
  static constexpr std::size_t size = 0x10;

  using xrcd = Field<0x48, 24>;
};

/// DEALLOC_XRCD 0x80f: input.
struct DeallocXrcdInput {
  static constexpr std::size_t size = 0x10;

  using xrcd = Field<0x48, 24>;
};

/// ALLOC_TRANSPORT_DOMAIN 0x816: output.
struct AllocTransportDomainOutput {
  static constexpr std::size_t size = 0x10;

  using transport_domain = Field<0x48, 24>;
};

/// DEALLOC_TRANSPORT_DOMAIN 0x817: input.
struct DeallocTransportDomainInput {
  static constexpr std::size_t size = 0x10;

  using transport_domain = Field<0x48, 24>;
};

/// ALLOC_Q_COUNTER 0x771: output.
struct AllocQCounterOutput {
  static constexpr std::size_t size = 0x10;

  using counter_set_id = Field<0x58, 8>;
};

/// DEALLOC_Q_COUNTER 0x772: input.
struct DeallocQCounterInput {
  static constexpr std::size_t size = 0x10;

  using counter_set_id = Field<0x58, 8>;
};

/// QUERY_Q_COUNTER 0x773: input.
struct QueryQCounterInput {
  static constexpr std::size_t size = 0x20;

  using clear = Field<0xc0, 1>;  ///< Counters restart at 0.
  using counter_set_id = Field<0xf8, 8>;
};

/// QUERY_Q_COUNTER 0x773: output.
struct QueryQCounterOutput {
  static constexpr std::size_t size = 0x100;

  using rx_write_requests = Field<0x80, 32>;
  using rx_read_requests = Field<0xc0, 32>;
  using rx_atomic_requests = Field<0x100, 32>;
  using rx_dct_connect = Field<0x140, 32>;
  using out_of_buffer = Field<0x180, 32>;
  using out_of_sequence = Field<0x1c0, 32>;
  using duplicate_request = Field<0x200, 32>;
  using rnr_nak_retry_err = Field<0x240, 32>;
  using packet_seq_err = Field<0x280, 32>;
  using implied_nak_seq_err = Field<0x2c0, 32>;
  using local_ack_timeout_err = Field<0x300, 32>;
  using resp_local_length_error = Field<0x3c0, 32>;
  using req_local_length_error = Field<0x3e0, 32>;
  using resp_local_qp_error = Field<0x400, 32>;
  using local_operation_error = Field<0x420, 32>;
  using resp_local_protection = Field<0x440, 32>;
  using req_local_protection = Field<0x460, 32>;
  using resp_cqe_error = Field<0x480, 32>;
  using req_cqe_error = Field<0x4a0, 32>;
  using req_mw_binding = Field<0x4c0, 32>;
  using req_bad_response = Field<0x4e0, 32>;
  using req_remote_invalid_request = Field<0x500, 32>;
  using resp_remote_invalid_request = Field<0x520, 32>;
  using req_remote_access_errors = Field<0x540, 32>;
  using resp_remote_access_errors = Field<0x560, 32>;
  using req_remote_operation_errors = Field<0x580, 32>;
  using req_transport_retries_exceeded = Field<0x5a0, 32>;
  using cq_overflow = Field<0x5c0, 32>;
  using resp_cqe_flush_error = Field<0x5e0, 32>;
  using req_cqe_flush_error = Field<0x600, 32>;
  using roce_adp_retrans = Field<0x640, 32>;
  using roce_adp_retrans_to = Field<0x660, 32>;
  using roce_slow_restart = Field<0x680, 32>;
  using roce_slow_restart_cnps = Field<0x6a0, 32>;
  using roce_slow_restart_trans = Field<0x6c0, 32>;
};

/// ATTACH_TO_MCG 0x806: input.
struct AttachToMcgInput {
  static constexpr std::size_t size = 0x20;

  using qpn = Field<0x48, 24>;
  using multicast_gid = Block<0x10, 0x10>;
};

/// DETACH_FROM_MCG 0x807: input.
struct DetachFromMcgInput {
  static constexpr std::size_t size = 0x20;

  using qpn = Field<0x48, 24>;
  using multicast_gid = Block<0x10, 0x10>;
};

}  // namespace softhca::prm
