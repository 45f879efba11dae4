// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "hw-model/prm/big_endian.h"
#include "hw-model/prm/field.h"

/// Completion queue entries (PRM "Completion Queue Entry (CQE)"; kernel include/linux/mlx5/cq.h,
/// device.h).
///
/// A CQE is 64 bytes; in a CQ of 128-byte entries it is the upper half, and the lower half holds
/// inline scatter data or nothing. Ownership: software owns the entry when its owner bit equals bit
/// log_cq_size of the consumer counter (0 on the first pass) and its opcode is not `invalid`. The
/// device writes byte 0x3f last.
namespace softhca::prm {

inline constexpr std::size_t kCqeSize64 = 64;
inline constexpr std::size_t kCqeSize128 = 128;
/// Offset of the 64-byte CQE in a 128-byte entry.
inline constexpr std::size_t kCqeOffsetIn128 = 64;

enum class CqeOpcode : std::uint8_t {
  requester = 0,
  responder_write_imm = 1,
  responder_send = 2,
  responder_send_imm = 3,
  responder_send_invalidate = 4,
  resize_cq = 5,  ///< Last entry in the old buffer of a resized CQ; takes one consumer index.
  no_packet = 6,
  signature_error = 12,
  requester_error = 13,
  responder_error = 14,
  invalid = 15,  ///< Preset by the driver; never written by the device.
};

/// Format of a CQE: where the payload of a small message is (scatter to CQE).
enum class CqeFormat : std::uint8_t {
  no_inline = 0,
  inline_32 = 1,  ///< Payload in bytes 0..31 of this CQE.
  inline_64 = 2,  ///< Payload in the 64 bytes before this CQE (lower half of a 128-byte entry).
  compressed = 3,
};

/// A 64-byte CQE.
struct Cqe {
  static constexpr std::size_t size = 64;
  using wqe_id = Field<16, 16>;
  using ml_path = Field<137, 7>;  ///< Low bits of the destination LID that the packet named (LMC).
  using source_lid = Field<176, 16>;  ///< UD: SLID of the packet.
  using grh = Field<194, 2>;  ///< 1: a GRH is in the first 40 bytes of the buffer (IPv6 form).
  using service_level = Field<196, 4>;
  using remote_qpn = Field<200, 24>;  ///< UD: source QP.
  using srqn_user_index =
      Field<264, 24>;  ///< cqe_version 1: user_index of the QP, or of the SRQ for XRC.
  using immediate = Field<288, 32>;  ///< Immediate data (wire order), invalidated R_Key, or P_Key
                                     ///< index; QP1: the P_Key itself.
  using byte_count =
      Field<352, 32>;  ///< Bytes received, read or written back; includes 40 of the GRH in UD.
  using timestamp = Field<384, 64>;
  using send_opcode = Field<448, 8>;  ///< Requester: WqeOpcode.
  using qpn = Field<456, 24>;
  using wqe_counter =
      Field<480, 16>;  ///< Requester: wqe_index of the WQE; responder: RQ counter or SRQ entry.
  using signature = Field<496, 8>;
  using opcode = Field<504, 4>;  ///< CqeOpcode.
  using format = Field<508, 2>;  ///< CqeFormat.
  using solicited = Field<510, 1>;
  using owner = Field<511, 1>;
  /// Inline scatter data of CqeFormat::inline_32.
  using inline_32 = Block<0, 32>;
  static constexpr std::size_t owner_offset = 63;
};

/// Fields of an error CQE (opcodes requester_error, responder_error) beyond those it shares with
/// Cqe.
struct ErrorCqe {
  using hardware_syndrome = Field<416, 8>;
  using hardware_syndrome_type = Field<424, 8>;
  using vendor_syndrome = Field<432, 8>;
  using syndrome = Field<440, 8>;  ///< CqeSyndrome.
};

enum class CqeSyndrome : std::uint8_t {
  local_length = 0x01,
  local_qp_operation = 0x02,
  local_protection = 0x04,
  flushed = 0x05,
  memory_window_bind = 0x06,
  bad_response = 0x10,
  local_access = 0x11,
  remote_invalid_request = 0x12,
  remote_access = 0x13,
  remote_operation = 0x14,
  transport_retry_exceeded = 0x15,
  rnr_retry_exceeded = 0x16,
  remote_aborted = 0x22,
};

/// ErrorCqe::vendor_syndrome, which applications print as vendor_err. The first group is what
/// ConnectX devices report in public logs (of UCX, NCCL, perftest, Charm++ and Solaris); for the
/// second one no such source is known.
struct VendorSyndrome {
  static constexpr std::uint8_t local_protection = 0x51;
  static constexpr std::uint8_t transport_retry = 0x81;
  static constexpr std::uint8_t remote_access = 0x88;
  static constexpr std::uint8_t remote_invalid_request = 0x8a;
  static constexpr std::uint8_t flushed = 0xf9;

  static constexpr std::uint8_t rnr_retry = 0x87;
  static constexpr std::uint8_t local_length = 0x50;
  static constexpr std::uint8_t local_qp_operation = 0x68;
  static constexpr std::uint8_t memory_window_bind = 0x6a;
  static constexpr std::uint8_t bad_response = 0x80;
  static constexpr std::uint8_t remote_operation = 0x89;
};

/// A CQE as stored.
struct CqeWords {
  std::uint8_t reserved0[2];
  Be16 wqe_id;
  std::uint8_t reserved4[13];
  std::uint8_t ml_path;
  std::uint8_t reserved18[4];
  Be16 source_lid;
  Be32 flags_rqpn;  ///< grh << 28 | service level << 24 | source QPN.
  std::uint8_t reserved28[4];
  Be32 srqn_user_index;
  Be32 immediate;
  std::uint8_t reserved40[4];
  Be32 byte_count;
  Be64 timestamp;  ///< Error CQE: byte 6 vendor syndrome, byte 7 syndrome.
  Be32 sop_qpn;    ///< send_opcode << 24 | QPN.
  Be16 wqe_counter;
  std::uint8_t signature;
  std::uint8_t op_own;  ///< opcode << 4 | format << 2 | solicited << 1 | owner.

  std::uint8_t vendor_syndrome() const { return static_cast<std::uint8_t>(timestamp.get() >> 8); }
  std::uint8_t syndrome() const { return static_cast<std::uint8_t>(timestamp.get()); }
};
static_assert(sizeof(CqeWords) == 64 && offsetof(CqeWords, op_own) == Cqe::owner_offset);
static_assert(offsetof(CqeWords, ml_path) == 17 && offsetof(CqeWords, source_lid) == 22 &&
              offsetof(CqeWords, flags_rqpn) == Cqe::remote_qpn::byte_offset &&
              offsetof(CqeWords, srqn_user_index) == Cqe::srqn_user_index::byte_offset &&
              offsetof(CqeWords, immediate) == Cqe::immediate::byte_offset &&
              offsetof(CqeWords, byte_count) == Cqe::byte_count::byte_offset &&
              offsetof(CqeWords, timestamp) == Cqe::timestamp::byte_offset &&
              offsetof(CqeWords, sop_qpn) == Cqe::qpn::byte_offset &&
              offsetof(CqeWords, wqe_counter) == Cqe::wqe_counter::byte_offset);
static_assert(ErrorCqe::vendor_syndrome::byte_offset == 0x34 &&
              ErrorCqe::vendor_syndrome::shift == 8 && ErrorCqe::syndrome::shift == 0);

}  // namespace softhca::prm
