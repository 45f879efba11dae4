// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>

namespace softhca {

/// Q counters (PRM QUERY_Q_COUNTER): what happened on all queue pairs of one counter set. Each
/// wraps at 32 bits. "Responder" is the receiving half of a queue pair, "requester" the sending
/// one.
struct QCounters {
  // Requests that the responder accepted: messages, duplicates not counted again.
  std::uint32_t rx_write_requests = 0;
  std::uint32_t rx_read_requests = 0;
  std::uint32_t rx_atomic_requests = 0;
  // Losses. Those that a retry may mend are counted when there is a retry left.
  std::uint32_t out_of_buffer = 0;          ///< Packets that found no receive WQE.
  std::uint32_t out_of_sequence = 0;        ///< Request packets after a gap.
  std::uint32_t duplicate_request = 0;      ///< Request packets received again.
  std::uint32_t rnr_nak_retry_err = 0;      ///< RNR NAKs received.
  std::uint32_t packet_seq_err = 0;         ///< PSN sequence error NAKs received.
  std::uint32_t implied_nak_seq_err = 0;    ///< Responses lost, as a later response shows.
  std::uint32_t local_ack_timeout_err = 0;  ///< Timeouts of the requester.
  // Errors that ended a work request or the queue pair.
  std::uint32_t resp_local_length_error = 0;
  std::uint32_t req_local_length_error = 0;
  std::uint32_t resp_local_qp_error = 0;
  std::uint32_t local_operation_error = 0;  ///< Bad send WQEs.
  std::uint32_t resp_local_protection = 0;
  std::uint32_t req_local_protection = 0;
  std::uint32_t resp_cqe_error = 0;  ///< Error CQEs of receives, flushed ones included.
  std::uint32_t req_cqe_error = 0;   ///< Error CQEs of sends, flushed ones included.
  std::uint32_t req_mw_binding = 0;
  std::uint32_t req_bad_response = 0;
  std::uint32_t req_remote_invalid_request = 0;
  std::uint32_t resp_remote_invalid_request = 0;
  std::uint32_t req_remote_access_errors = 0;
  std::uint32_t resp_remote_access_errors = 0;
  std::uint32_t req_remote_operation_errors = 0;
  std::uint32_t req_transport_retries_exceeded = 0;
  std::uint32_t cq_overflow = 0;  ///< CQs that a CQE of these queue pairs overran.
  std::uint32_t resp_cqe_flush_error = 0;
  std::uint32_t req_cqe_flush_error = 0;
};

/// A counter set of ALLOC_Q_COUNTER.
struct QCounterSet {
  QCounterSet(std::uint32_t number_in, std::uint16_t uid_in) : number(number_in), uid(uid_in) {}

  /// Set 0 is none: what it would count is lost. Its number in qpc.counter_set_id has 8 bits.
  static constexpr std::uint32_t kFirst = 1;
  static constexpr std::uint32_t kLimit = 256;

  std::uint32_t number;
  std::uint16_t uid;  ///< User context that owns it.
  QCounters counters;
};

}  // namespace softhca
