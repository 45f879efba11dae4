// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "hw-model/prm/big_endian.h"
#include "hw-model/prm/field.h"

/// Work queue entries (PRM "Work Request (WQE) Formats"; kernel include/linux/mlx5/qp.h, device.h).
///
/// A send queue is a ring of 64-byte basic blocks (WQEBB). A send WQE is a chain of 16-byte units
/// ("ds"): control segment, then the segments its opcode asks for, then data segments. It may wrap
/// from the end of the ring to its beginning at any 16-byte boundary. A receive queue is a ring of
/// strides (16 << n bytes) that hold scatter entries (DataSegment) and nothing else; an SRQ or RMP
/// entry begins with a NextSegment.
///
/// Each layout comes twice from one source of truth: `Field` constants by PRM bit offset (checked
/// decode, printing) and a plain structure of big-endian members for hot paths. The static_asserts
/// below tie both.
namespace softhca::prm {

inline constexpr std::size_t kWqeBasicBlock = 64;  ///< Unit of the SQ producer counter, in bytes.
inline constexpr std::size_t kWqeUnit = 16;        ///< One "ds", in bytes.
inline constexpr unsigned kWqeMaxUnits = 63;       ///< ds_count is 6 bits wide: 1008 bytes at most.
inline constexpr std::size_t kWqeMaxSendBytes = 1024;

/// Operation of a send WQE. Values without a comment follow IBA's operation of that name.
enum class WqeOpcode : std::uint8_t {
  nop = 0x00,
  send_invalidate = 0x01,  ///< Control word 3: R_Key to invalidate.
  rdma_write = 0x08,
  rdma_write_imm = 0x09,
  send = 0x0a,
  send_imm = 0x0b,
  tso = 0x0e,  ///< Large send offload (Ethernet and IPoIB).
  rdma_read = 0x10,
  atomic_cmp_swap = 0x11,
  atomic_fetch_add = 0x12,
  atomic_masked_cmp_swap = 0x14,
  atomic_masked_fetch_add = 0x15,
  bind_mw = 0x18,
  local_invalidate = 0x1b,
  set_psv = 0x20,
  dump = 0x23,
  umr = 0x25,  ///< User-mode memory registration: bind MW, fast register, local invalidate. Control
               ///< word 3: mkey.
};

/// Completion mode, bits 3:2 of the control segment's last byte of word 2.
enum class CompletionMode : std::uint8_t {
  only_error = 0,        ///< CQE only if the WQE fails.
  only_first_error = 1,  ///< CQE only for the first failing WQE of the queue.
  always = 2,
  always_and_event = 3,  ///< CQE always, and an EQE even if the CQ is not armed.
};

/// Fence mode, bits 7:5 of the same byte.
enum class FenceMode : std::uint8_t {
  none = 0,
  initiator_small = 1,  ///< Wait for preceding local invalidations and UMRs.
  fence = 2,            ///< Wait for preceding RDMA READs and atomics (IBA 10.8.3.3).
  strong_ordering = 3,
  small_and_fence = 4,
};

/// Control segment: first 16 bytes of every send WQE.
struct CtrlSegment {
  static constexpr std::size_t size = 16;
  using opmod = Field<0, 8>;
  using wqe_index =
      Field<8, 16>;  ///< SQ producer counter of the WQE's first basic block, modulo 2^16.
  using opcode = Field<24, 8>;  ///< WqeOpcode.
  using qpn = Field<32, 24>;
  using ds_count = Field<58, 6>;  ///< WQE length in 16-byte units, control segment included.
  using signature = Field<64, 8>;
  using dci_stream = Field<72, 16>;
  using fence_mode = Field<88, 3>;
  using completion = Field<92, 2>;
  using solicited = Field<94, 1>;
  using immediate =
      Field<96, 32>;  ///< Immediate data (wire order), R_Key to invalidate, or UMR's mkey.
};

/// Control segment as stored.
struct CtrlWords {
  Be32 opmod_index_opcode;
  Be32 qpn_ds;
  std::uint8_t signature;
  Be16 dci_stream __attribute__((packed));
  std::uint8_t fm_ce_se;  ///< fence_mode << 5 | completion << 2 | solicited << 1.
  Be32 immediate;

  static constexpr std::uint8_t kSolicited = 1 << 1;
  static constexpr std::uint8_t kCqUpdate = 2 << 2;
  static constexpr std::uint8_t kFenceInitiatorSmall = 1 << 5;
  static constexpr std::uint8_t kFenceSmallAndFence = 4 << 5;
};
static_assert(sizeof(CtrlWords) == 16 && offsetof(CtrlWords, dci_stream) == 9 &&
              offsetof(CtrlWords, fm_ce_se) == 11 && offsetof(CtrlWords, immediate) == 12);
static_assert(CtrlSegment::opcode::byte_offset == offsetof(CtrlWords, opmod_index_opcode) &&
              CtrlSegment::ds_count::byte_offset == offsetof(CtrlWords, qpn_ds) &&
              CtrlSegment::ds_count::shift == 0 && CtrlSegment::qpn::shift == 8 &&
              CtrlSegment::immediate::byte_offset == offsetof(CtrlWords, immediate) &&
              CtrlSegment::completion::shift == 2 && CtrlSegment::solicited::shift == 1 &&
              CtrlSegment::fence_mode::shift == 5);

/// Remote address segment of RDMA READ, RDMA WRITE and atomics.
struct RemoteAddressSegment {
  static constexpr std::size_t size = 16;
  using virtual_address = Field<0, 64>;
  using rkey = Field<64, 32>;
};
struct RemoteAddressWords {
  Be64 virtual_address;
  Be32 rkey;
  Be32 reserved;
};
static_assert(sizeof(RemoteAddressWords) == 16 &&
              RemoteAddressSegment::rkey::byte_offset == offsetof(RemoteAddressWords, rkey));

/// Atomic segment, after the remote address segment. Operands are big-endian integers whatever
/// order the memory word has. One data segment of 8 bytes follows: where the old value goes.
struct AtomicSegment {
  static constexpr std::size_t size = 16;
  using swap_add = Field<0, 64>;  ///< Swap value of compare-and-swap, addend of fetch-and-add.
  using compare = Field<64, 64>;  ///< Compare value; reserved in fetch-and-add.
};
struct AtomicWords {
  Be64 swap_add;
  Be64 compare;
};
static_assert(sizeof(AtomicWords) == 16 &&
              AtomicSegment::compare::byte_offset == offsetof(AtomicWords, compare));

/// Scatter or gather entry ("data segment") of send, receive and shared receive WQEs.
struct DataSegment {
  static constexpr std::size_t size = 16;
  using inline_data = Field<0, 1>;  ///< 1: not an entry but inline data, see InlineSegment.
  using byte_count = Field<1, 31>;  ///< Length in bytes; in a send WQE 0 means 2^31.
  using lkey = Field<32, 32>;
  using address = Field<64, 64>;
};
struct DataWords {
  Be32 byte_count;
  Be32 lkey;
  Be64 address;
};
static_assert(sizeof(DataWords) == 16 &&
              DataSegment::lkey::byte_offset == offsetof(DataWords, lkey) &&
              DataSegment::address::byte_offset == offsetof(DataWords, address));

/// L_Key that ends a scatter list before the WQE's last entry ("invalid" or terminating L_Key).
inline constexpr std::uint32_t kInvalidLkey = 0x100;

/// Inline data: 4-byte header, then `byte_count` bytes, padded to the next 16-byte boundary counted
/// from the header. Several inline segments and data segments may follow each other.
struct InlineSegment {
  static constexpr std::size_t header_size = 4;
  using inline_data = Field<0, 1>;  ///< 1.
  using byte_count = Field<22, 10>;
  static constexpr std::uint32_t kInlineFlag = 0x80000000U;

  /// 16-byte units that `bytes` of inline data take, header included.
  static constexpr std::size_t units(std::size_t bytes) {
    return (header_size + bytes + kWqeUnit - 1) / kWqeUnit;
  }
};

/// UD address vector. 48 bytes when `extended` is set, else the first 16 (compact: no GRH fields).
struct AddressVector {
  static constexpr std::size_t size = 48;
  static constexpr std::size_t compact_size = 16;
  using qkey = Field<0, 32>;
  using extended = Field<64, 1>;
  using destination_qpn = Field<72, 24>;
  using static_rate = Field<96, 4>;
  using service_level = Field<100, 4>;
  using force_loopback = Field<104, 1>;
  using path_bits = Field<105, 7>;  ///< Low bits of the source LID (LMC), "mlid" in the PRM.
  using destination_lid = Field<112, 16>;
  using traffic_class = Field<208, 8>;
  using hop_limit = Field<216, 8>;
  using grh_present = Field<225, 1>;
  using source_gid_index = Field<228, 8>;
  using flow_label = Field<236, 20>;
  using destination_gid = Block<32, 16>;
};
struct AddressVectorWords {
  Be32 qkey;
  Be32 reserved;
  Be32 extended_dqpn;
  std::uint8_t rate_sl;
  std::uint8_t path_bits;
  Be16 destination_lid;
  std::uint8_t reserved0[4];
  std::uint8_t destination_mac[6];
  std::uint8_t traffic_class;
  std::uint8_t hop_limit;
  Be32 grh_gid_flow;
  std::uint8_t destination_gid[16];

  static constexpr std::uint32_t kExtended = 0x80000000U;
  static constexpr std::uint32_t kGrh = 1U << 30;
};
static_assert(
    sizeof(AddressVectorWords) == 48 && offsetof(AddressVectorWords, extended_dqpn) == 8 &&
    offsetof(AddressVectorWords, traffic_class) == 26 &&
    offsetof(AddressVectorWords, grh_gid_flow) == AddressVector::flow_label::byte_offset &&
    offsetof(AddressVectorWords, destination_gid) == AddressVector::destination_gid::offset &&
    AddressVector::source_gid_index::shift == 20 && AddressVector::grh_present::shift == 30);

/// XRC segment: follows the control segment of every WQE of an XRC send QP.
struct XrcSegment {
  static constexpr std::size_t size = 16;
  using srqn = Field<8, 24>;  ///< Destination XRC SRQ.
};
struct XrcWords {
  Be32 srqn;
  std::uint8_t reserved[12];
};
static_assert(sizeof(XrcWords) == 16);

/// First 16 bytes of an SRQ or RMP entry: link of the free list. The index is in entries.
struct NextSegment {
  static constexpr std::size_t size = 16;
  using next_wqe_index = Field<16, 16>;
  using signature = Field<32, 8>;
};
struct NextWords {
  std::uint8_t reserved0[2];
  Be16 next_wqe_index;
  std::uint8_t signature;
  std::uint8_t reserved1[11];
};
static_assert(sizeof(NextWords) == 16 && offsetof(NextWords, next_wqe_index) == 2);

/// UMR control segment, after the control segment of WqeOpcode::umr.
struct UmrCtrlSegment {
  static constexpr std::size_t size = 48;
  using inline_translations = Field<0, 1>;  ///< KLM/MTT entries follow in the WQE itself.
  using check_free = Field<1, 2>;           ///< 1: fail unless free; 2: fail if free.
  using translation_offset_enable = Field<3, 1>;
  using check_qpn = Field<4, 1>;
  using translation_units = Field<32, 16>;  ///< Length of the list, in 16-byte units.
  using translation_offset =
      Field<48, 16>;                ///< Units of 16 bytes; BSF units when no offset is enabled.
  using mkey_mask = Field<64, 64>;  ///< UmrMask: fields of the mkey context to change.
  using translation_offset_47_16 = Field<128, 32>;
};
/// Bits of UmrCtrlSegment::mkey_mask.
struct UmrMask {
  static constexpr std::uint64_t length = 1ULL << 0;
  static constexpr std::uint64_t page_size = 1ULL << 1;
  static constexpr std::uint64_t start_address = 1ULL << 6;
  static constexpr std::uint64_t pd = 1ULL << 7;
  static constexpr std::uint64_t enable_remote_invalidate = 1ULL << 8;
  static constexpr std::uint64_t enable_signature_error = 1ULL << 9;
  static constexpr std::uint64_t bsf_enable = 1ULL << 12;
  static constexpr std::uint64_t key = 1ULL << 13;
  static constexpr std::uint64_t qpn = 1ULL << 14;
  static constexpr std::uint64_t local_read = 1ULL << 17;
  static constexpr std::uint64_t local_write = 1ULL << 18;
  static constexpr std::uint64_t remote_read = 1ULL << 19;
  static constexpr std::uint64_t remote_write = 1ULL << 20;
  static constexpr std::uint64_t atomic = 1ULL << 21;
  static constexpr std::uint64_t small_fence = 1ULL << 23;
  static constexpr std::uint64_t relaxed_ordering_write = 1ULL << 25;
  static constexpr std::uint64_t free = 1ULL << 29;
  static constexpr std::uint64_t relaxed_ordering_read = 1ULL << 47;
};

/// Memory key context as a UMR WQE carries it (same layout as the context of CREATE_MKEY).
struct UmrMkeySegment {
  static constexpr std::size_t size = 64;
  using free = Field<1, 1>;
  using umr_enable = Field<16, 1>;
  using atomic = Field<17, 1>;
  using remote_write = Field<18, 1>;
  using remote_read = Field<19, 1>;
  using local_write = Field<20, 1>;
  using local_read = Field<21, 1>;
  using access_mode = Field<22, 2>;  ///< 0 physical, 1 MTT, 2 KLM.
  using qpn = Field<32, 24>;         ///< 0xffffff: any QP.
  using key = Field<56, 8>;          ///< mkey_7_0.
  using remote_invalidate = Field<103, 1>;
  using pd = Field<104, 24>;
  using start_address = Field<128, 64>;
  using length = Field<192, 64>;
  using translation_units = Field<416, 32>;
  using log_page_size = Field<472, 8>;
};

/// KLM translation entry; also the layout of a data segment with a key of its own.
struct KlmEntry {
  static constexpr std::size_t size = 16;
  using byte_count = Field<0, 32>;
  using key = Field<32, 32>;
  using address = Field<64, 64>;
};

}  // namespace softhca::prm
