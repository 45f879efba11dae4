// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <string>

#include "hw-model/ib/packet.h"
#include "hw-model/prm/qp_context.h"
#include "hw-model/queues/completion_queue.h"
#include "hw-model/queues/object_table.h"
#include "hw-model/queues/queue_buffer.h"
#include "hw-model/queues/receive_queue.h"
#include "hw-model/queues/send_queue.h"
#include "hw-model/queues/shared_receive_queue.h"

namespace softhca {

/// What CREATE_QP fixes for a QP's life.
struct QpParams {
  prm::QpServiceType type = prm::QpServiceType::rc;
  std::uint32_t pd = 0;
  std::uint32_t user_index = 0;  ///< CQE.srqn_user_index (cqe_version 1).
  QueueBuffer buffer;            ///< RQ first, SQ directly after it.
  bool has_rq = true;            ///< Own receive queue; else `srq` or none.
  bool has_sq = true;
  ReceiveQueueParams rq;
  SendQueueParams sq;
  ObjectRef<CompletionQueue> send_cq;
  ObjectRef<CompletionQueue> recv_cq;
  ObjectRef<SharedReceiveQueue> srq;
  std::uint32_t xrcd = 0;          ///< XRC: domain of the SRQs that requests may name; 0: none.
  bool reserved_lkey = false;      ///< qpc.rlky.
  bool fast_registration = false;  ///< qpc.fre: UMR may write lists of pages.
  bool block_lb_mc = false;        ///< Own multicasts are not delivered on this HCA to this QP.
  std::uint8_t cs_req = 0;  ///< Scatter to CQE of READ and atomic results: bytes, 0, 32 or 64.
  std::uint8_t cs_res = 0;  ///< Scatter to CQE of received payload: bytes, 0, 32 or 64.
  std::uint8_t log_msg_max = 30;
  std::uint8_t log_ack_req_freq = 0;
  std::uint32_t deth_sqpn = 0;  ///< Source QP number in DETH when not 0 (GSI transmit QPs).
};

/// An address path of a QP (ads). The source GID is looked up in the port's table by index.
struct QpPath {
  std::uint16_t dlid = 0;
  std::uint8_t path_bits = 0;
  std::uint8_t sl = 0;
  bool has_grh = false;
  std::uint8_t sgid_index = 0;
  ib::Gid dgid{};
  std::uint8_t traffic_class = 0;
  std::uint32_t flow_label = 0;
  std::uint8_t hop_limit = 0;
  std::uint8_t static_rate = 0;
};

/// What the modify commands set and QUERY_QP reads back.
struct QpAttributes {
  std::uint16_t pkey_index = 0;
  std::uint8_t port = 1;
  bool remote_read = false;    ///< qpc.rre
  bool remote_write = false;   ///< qpc.rwe
  bool remote_atomic = false;  ///< qpc.rae
  std::uint32_t qkey = 0;
  QpPath path;
  std::uint8_t mtu = 5;  ///< 1..5.
  std::uint32_t remote_qpn = 0;
  std::uint32_t next_rcv_psn = 0;
  std::uint32_t next_send_psn = 0;
  std::uint8_t log_rra_max = 0;  ///< READs and atomics outstanding as responder: 1 << n.
  std::uint8_t log_sra_max = 0;  ///< As requester.
  std::uint8_t min_rnr_nak = 0;  ///< Timer code.
  std::uint8_t retry_count = 0;
  std::uint8_t rnr_retry = 0;    ///< 7: for ever.
  std::uint8_t ack_timeout = 0;  ///< 4.096 us << n; 0: for ever.
  std::uint8_t pm_state = 3;
  std::uint8_t counter_set_id = 0;
};

/// The modify commands (one opcode each in the PRM).
enum class QpTransition : std::uint8_t {
  reset_to_init,
  init_to_init,
  init_to_rtr,
  rtr_to_rts,
  rts_to_rts,
  sq_error_to_rts,
  sq_drained_to_rts,
  rts_to_sq_drained,
  to_error,
  to_reset,
};
enum class ModifyResult : std::uint8_t { ok, bad_state, bad_parameter };

/// Counts since creation or the last 2RST.
struct QpCounters {
  std::uint64_t packets_sent = 0;
  std::uint64_t packets_received = 0;
  std::uint64_t bytes_sent = 0;      ///< Payload, retransmissions included.
  std::uint64_t bytes_received = 0;  ///< Payload accepted.
  std::uint64_t messages_sent = 0;
  std::uint64_t messages_received = 0;
  std::uint64_t retransmissions = 0;  ///< Times the requester went back.
  std::uint64_t timeouts = 0;         ///< local_ack_timeout_err
  std::uint64_t rnr_naks_sent = 0;    ///< out_of_buffer
  std::uint64_t rnr_naks_received = 0;
  std::uint64_t sequence_naks_sent = 0;      ///< out_of_sequence
  std::uint64_t sequence_naks_received = 0;  ///< packet_seq_err
  std::uint64_t implied_naks = 0;            ///< implied_nak_seq_err
  std::uint64_t duplicate_requests = 0;
  std::uint64_t packets_dropped = 0;
  std::uint64_t completions = 0;
  std::uint64_t error_completions = 0;
};

/// Where to look for what a QP waits for.
enum class StallCause : std::uint8_t {
  none,    ///< It is idle, or moves.
  itself,  ///< Its own queues, memory or state.
  port,    ///< Its own port, which is not active.
  peer,    ///< Its peer, or the way to it: no response came yet.
};

/// One QP as `softhca status` and QUERY_QP show it.
struct QpSnapshot {
  std::uint32_t qpn = 0;
  prm::QpServiceType type = prm::QpServiceType::rc;
  prm::QpState state = prm::QpState::reset;
  QpAttributes attributes;  ///< next_send_psn, next_rcv_psn are current values.
  QpCounters counters;
  std::uint32_t send_cqn = 0;
  std::uint32_t recv_cqn = 0;
  std::uint32_t srqn = 0;
  std::uint16_t sq_posted = 0;    ///< Producer counter as last read, basic blocks.
  std::uint16_t sq_consumed = 0;  ///< Taken by the device.
  std::uint16_t rq_posted = 0;
  std::uint16_t rq_consumed = 0;
  std::uint32_t last_acked_psn = 0;
  std::uint32_t outstanding_wqes = 0;
  StallCause stall_cause = StallCause::none;
  std::string stall;  ///< Why it is not moving, as a sentence; empty when it is idle or running.
};

}  // namespace softhca
