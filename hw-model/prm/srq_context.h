// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include "hw-model/prm/field.h"

namespace softhca::prm {

// Shared receive queues: SRQ (ISSI 0), XRC SRQ, and RMP over the generic work queue.

/// Shared receive queue context (CREATE_SRQ).
struct SrqContext {
  static constexpr std::size_t size = 0x40;

  using state = Field<0x0, 4>;  ///< SrqState.
  using log_srq_size = Field<0x4, 4>;
  using wq_signature = Field<0x20, 1>;
  using cont_srq = Field<0x21, 1>;
  using rlky = Field<0x23, 1>;           ///< Reserved L_Key may be used.
  using log_rq_stride = Field<0x25, 3>;  ///< Stride is 16 << log_rq_stride bytes.
  using xrcd = Field<0x28, 24>;
  using page_offset = Field<0x40, 6>;  ///< First byte of the buffer inside its first page, in units
                                       ///< of page_size / 64.
  using cqn = Field<0x48, 24>;
  using log_page_size = Field<0x82, 6>;  ///< Page size of the buffer is 4096 << log_page_size.
  using pd = Field<0xc8, 24>;
  using lwm = Field<0xe0, 16>;        ///< Limit: event when fewer receive WQEs are left.
  using wqe_cnt = Field<0xf0, 16>;    ///< WQEs posted and not consumed.
  using dbr_addr = Field<0x140, 64>;  ///< Address of the doorbell record.
};

/// XRC shared receive queue context.
struct XrcSrqContext {
  static constexpr std::size_t size = 0x40;

  using state = Field<0x0, 4>;  ///< SrqState.
  using log_xrc_srq_size = Field<0x4, 4>;
  using wq_signature = Field<0x20, 1>;
  using cont_srq = Field<0x21, 1>;
  using rlky = Field<0x23, 1>;
  using basic_cyclic_rcv_wqe = Field<0x24, 1>;  ///< Cyclic instead of linked-list queue.
  using log_rq_stride = Field<0x25, 3>;         ///< Stride is 16 << log_rq_stride bytes.
  using xrcd = Field<0x28, 24>;
  using page_offset = Field<0x40, 6>;  ///< First byte of the buffer inside its first page, in units
                                       ///< of page_size / 64.
  using dbr_umem_valid = Field<0x47, 1>;
  using cqn = Field<0x48, 24>;  ///< CQ of receives.
  using user_index_equal_xrc_srqn = Field<0x80, 1>;
  using log_page_size = Field<0x82, 6>;  ///< Page size of the buffer is 4096 << log_page_size.
  using user_index = Field<0x88, 24>;    ///< Number that CQEs carry.
  using pd = Field<0xc8, 24>;
  using lwm = Field<0xe0, 16>;  ///< Limit: event when fewer receive WQEs are left.
  using wqe_cnt = Field<0xf0, 16>;
  using db_record_addr_h = Field<0x140, 32>;
  using db_record_addr_l = Field<0x160, 30>;
  using dbr_addr =
      Field<0x140, 64>;  ///< Whole address of the doorbell record, low two bits reserved.
};

/// State of an SRQ or RMP.
enum class SrqState : std::uint8_t { error = 0x0, good = 0x1 };

/// Generic work queue, followed by its list of pages.
struct WqContext {
  static constexpr std::size_t size = 0xc0;

  using wq_type = Field<0x0, 4>;  ///< WqType.
  using wq_signature = Field<0x4, 1>;
  using end_padding_mode = Field<0x5, 2>;
  using cd_slave = Field<0x7, 1>;
  using hds_skip_first_sge = Field<0x20, 1>;
  using log2_hds_buf_size = Field<0x21, 3>;
  using page_offset = Field<0x2b, 5>;  ///< First byte of the buffer inside its first page, in units
                                       ///< of page_size / 64.
  using lwm = Field<0x30, 16>;         ///< Limit: event when fewer receive WQEs are left.
  using pd = Field<0x48, 24>;
  using uar_page = Field<0x68, 24>;
  using dbr_addr = Field<0x80, 64>;  ///< Address of the doorbell record.
  using hw_counter = Field<0xc0, 32>;
  using sw_counter = Field<0xe0, 32>;
  using log_wq_stride = Field<0x10c, 4>;  ///< Stride is 1 << log_wq_stride bytes.
  using log_wq_pg_sz = Field<0x113, 5>;   ///< Page size is 4096 << log_wq_pg_sz.
  using log_wq_sz = Field<0x11b, 5>;      ///< log2 of the number of WQEs.
  using dbr_umem_valid = Field<0x120, 1>;
  using wq_umem_valid = Field<0x121, 1>;
  using log_hairpin_num_packets = Field<0x123, 5>;
  using log_hairpin_data_sz = Field<0x12b, 5>;
  using log_wqe_num_of_strides = Field<0x134, 4>;
  using two_byte_shift_en = Field<0x138, 1>;
  using log_wqe_stride_size = Field<0x13d, 3>;
  using headers_mkey = Field<0x1c0, 32>;
  using shampo_enable = Field<0x1e0, 1>;
  using log_reservation_size = Field<0x1e5, 3>;
  using log_max_num_of_packets_per_reservation = Field<0x1ed, 3>;
  using log_headers_entry_size = Field<0x1f6, 2>;
  using log_headers_buffer_entry_num = Field<0x1fc, 4>;
  static constexpr std::size_t pas_offset = 0xc0;
};

/// WqContext::wq_type.
enum class WqType : std::uint8_t {
  linked_list = 0x0,
  cyclic = 0x1,
  linked_list_striding = 0x2,
  cyclic_striding = 0x3
};

/// Receive memory pool context.
struct RmpContext {
  static constexpr std::size_t size = 0xf0;

  using state = Field<0x8, 4>;  ///< RmpState.
  using basic_cyclic_rcv_wqe = Field<0x20, 1>;
  using wq = Block<0x30, 0xc0>;  ///< WqContext.
  static constexpr std::size_t pas_offset = wq::offset + WqContext::size;
};

/// RmpContext::state.
enum class RmpState : std::uint8_t { ready = 0x1, error = 0x3 };

}  // namespace softhca::prm
