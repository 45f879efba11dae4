// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include "hw-model/prm/field.h"

namespace softhca::prm {

/// Queue pair context.
struct QpContext {
  static constexpr std::size_t size = 0xe8;

  using state = Field<0x0, 4>;  ///< QpState.
  using lag_tx_port_affinity = Field<0x4, 4>;
  using st = Field<0x8, 8>;  ///< QpServiceType.
  using isolate_vl_tc = Field<0x12, 1>;
  using pm_state = Field<0x13, 2>;  ///< Path migration state; 3 is migrated.
  using req_e2e_credit_mode = Field<0x16, 2>;
  using offload_type = Field<0x18, 4>;
  using end_padding_mode = Field<0x1c, 2>;
  using wq_signature = Field<0x20, 1>;
  using block_lb_mc = Field<0x21, 1>;
  using atomic_like_write_en = Field<0x22, 1>;
  using latency_sensitive = Field<0x23, 1>;
  using drain_sigerr = Field<0x25, 1>;
  using pd = Field<0x28, 24>;
  using mtu = Field<0x40, 3>;          ///< 1..5: 256..4096 bytes.
  using log_msg_max = Field<0x43, 5>;  ///< log2 of the longest message.
  using log_rq_size = Field<0x49, 4>;  ///< log2 of the number of receive WQEs.
  using log_rq_stride =
      Field<0x4d, 3>;            ///< Stride of the receive queue is 16 << log_rq_stride bytes.
  using no_sq = Field<0x50, 1>;  ///< There is no send queue.
  using log_sq_size = Field<0x51, 4>;  ///< log2 of the number of 64 byte send WQE blocks.
  using ts_format = Field<0x58, 2>;
  using rlky = Field<0x5b, 1>;  ///< Reserved L_Key may be used.
  using ulp_stateless_offload_mode = Field<0x5c, 4>;
  using counter_set_id = Field<0x60, 8>;  ///< Q counter set.
  using uar_page = Field<0x68, 24>;       ///< UAR that rings this QP.
  using user_index = Field<0x88, 24>;     ///< Number that CQEs carry with cqe_version 1.
  using log_page_size = Field<0xa3, 5>;   ///< Page size of the buffer is 4096 << log_page_size.
  using remote_qpn = Field<0xa8, 24>;     ///< Destination QP.
  using primary_address_path = Block<0x18, 0x2c>;    ///< AddressPath.
  using secondary_address_path = Block<0x44, 0x2c>;  ///< AddressPath for migration.
  using log_ack_req_freq = Field<0x380, 4>;  ///< An acknowledge is asked for every 1 << n packets.
  using log_sra_max = Field<0x388, 3>;  ///< log2 of READs and atomics outstanding as requester.
  using retry_count = Field<0x38d, 3>;  ///< Transport retries.
  using rnr_retry = Field<0x390, 3>;    ///< RNR retries, 7 is for ever.
  using fre = Field<0x394, 1>;          ///< Fast registration allowed.
  using cur_rnr_retry = Field<0x395, 3>;
  using cur_retry_count = Field<0x398, 3>;
  using next_send_psn = Field<0x3c8, 24>;
  using log_num_dci_stream_channels = Field<0x3e3, 5>;
  using cqn_snd = Field<0x3e8, 24>;  ///< CQ of sends.
  using log_num_dci_errored_streams = Field<0x403, 5>;
  using deth_sqpn = Field<0x408, 24>;
  using last_acked_psn = Field<0x448, 24>;
  using ssn = Field<0x468, 24>;
  using log_rra_max = Field<0x488, 3>;  ///< log2 of READs and atomics outstanding as responder.
  using atomic_mode = Field<0x48c, 4>;  ///< QpAtomicMode.
  using rre = Field<0x490, 1>;          ///< Remote reads allowed.
  using rwe = Field<0x491, 1>;          ///< Remote writes allowed.
  using rae = Field<0x492, 1>;          ///< Remote atomics allowed.
  using page_offset = Field<0x494, 6>;  ///< First byte of the buffer inside its first page, in
                                        ///< units of page_size / 64.
  using cd_slave_receive = Field<0x49d, 1>;
  using cd_slave_send = Field<0x49e, 1>;
  using cd_master = Field<0x49f, 1>;
  using min_rnr_nak = Field<0x4a3, 5>;  ///< RNR NAK timer code (IBA table 45).
  using next_rcv_psn = Field<0x4a8, 24>;
  using xrcd = Field<0x4c8, 24>;      ///< XRC domain.
  using cqn_rcv = Field<0x4e8, 24>;   ///< CQ of receives.
  using dbr_addr = Field<0x500, 64>;  ///< Address of the doorbell record. Word 0: RQ, word 1: SQ.
  using q_key = Field<0x540, 32>;     ///< Q_Key of datagram QPs.
  using rq_type = Field<0x565, 3>;    ///< QpReceiveQueueType.
  using srqn_rmpn_xrqn = Field<0x568, 24>;  ///< SRQ of the QP, looked at by rq_type only.
  using rmsn = Field<0x588, 24>;
  using hw_sq_wqebb_counter = Field<0x5a0, 16>;  ///< Producer counter as the device saw it.
  using sw_sq_wqebb_counter = Field<0x5b0, 16>;  ///< Producer counter as software wrote it.
  using hw_rq_counter = Field<0x5c0, 32>;
  using sw_rq_counter = Field<0x5e0, 32>;
  using cgs = Field<0x62f, 1>;
  using cs_req = Field<0x630, 8>;  ///< CQE scatter of requester, 0 is off.
  using cs_res = Field<0x638, 8>;  ///< CQE scatter of responder, 0 is off.
  using dc_access_key = Field<0x640, 64>;
  using dbr_umem_valid = Field<0x683, 1>;
};

/// QpContext::state.
enum class QpState : std::uint8_t {
  reset = 0x0,
  init = 0x1,
  rtr = 0x2,
  rts = 0x3,
  sq_error = 0x4,
  sq_drained = 0x5,
  error = 0x6,
  suspended = 0x9,
};

/// QpContext::st.
enum class QpServiceType : std::uint8_t {
  rc = 0x0,
  uc = 0x1,
  ud = 0x2,
  xrc = 0x3,
  dci = 0x5,
  qp0 = 0x7,
  qp1 = 0x8,
  raw_ethertype = 0x9,
  reg_umr = 0xc,
};

/// QpContext::rq_type.
enum class QpReceiveQueueType : std::uint8_t { regular = 0x0, srq_rmp_xrc_srq = 0x1, none = 0x3 };

/// QpContext::atomic_mode.
enum class QpAtomicMode : std::uint8_t {
  none = 0x0,
  ib_compliant = 0x1,
  only_8b = 0x2,
  up_to_8b = 0x3
};

/// Bits of opt_param_mask: fields of the context that a state transition changes beyond the
/// required ones.
enum QpOptParam : std::uint32_t {
  kOptParamAlternatePath = 1U << 0,
  kOptParamRre = 1U << 1,
  kOptParamRae = 1U << 2,
  kOptParamRwe = 1U << 3,
  kOptParamPkeyIndex = 1U << 4,
  kOptParamQkey = 1U << 5,
  kOptParamRnrTimeout = 1U << 6,
  kOptParamPrimaryPath = 1U << 7,
  kOptParamSraMax = 1U << 8,
  kOptParamRraMax = 1U << 9,
  kOptParamPmState = 1U << 10,
  kOptParamRetryCount = 1U << 12,
  kOptParamRnrRetry = 1U << 13,
  kOptParamAckTimeout = 1U << 14,
  kOptParamSrqn = 1U << 18,
  kOptParamCqnRcv = 1U << 19,
  kOptParamDcHighSpeed = 1U << 20,
  kOptParamDcKey = 1U << 21,
  kOptParamCounterSetId = 1U << 25,
};

}  // namespace softhca::prm
