// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include "hw-model/prm/field.h"

namespace softhca::prm {

/// Completion queue context.
struct CqContext {
  static constexpr std::size_t size = 0x40;

  using status = Field<0x0, 4>;  ///< CqStatus.
  using dbr_umem_valid = Field<0x6, 1>;
  using apu_cq = Field<0x7, 1>;
  using cqe_sz = Field<0x8, 3>;  ///< 0: 64 byte CQEs, 1: 128 bytes (the CQE is the upper half).
  using cc = Field<0xb, 1>;      ///< Collapsed: all CQEs go to entry 0.
  using scqe_break_moderation_en = Field<0xd, 1>;
  using oi =
      Field<0xe, 1>;  ///< Overrun is ignored: the device does not look at the consumer index.
  using cq_period_mode = Field<0xf, 2>;
  using cqe_comp_en = Field<0x11, 1>;
  using mini_cqe_res_format = Field<0x12, 2>;
  using st = Field<0x14, 4>;  ///< CqState.
  using cqe_compression_layout = Field<0x1e, 2>;
  using page_offset = Field<0x54, 6>;  ///< First byte of the buffer inside its first page, in units
                                       ///< of page_size / 64.
  using log_cq_size = Field<0x63, 5>;
  using uar_page = Field<0x68, 24>;
  using cq_period = Field<0x84, 12>;             ///< Event moderation: microseconds.
  using cq_max_count = Field<0x90, 16>;          ///< Event moderation: CQEs before an event.
  using c_eqn_or_apu_element = Field<0xa0, 32>;  ///< EQ that gets completion events (low 8 bits).
  using log_page_size = Field<0xc3, 5>;  ///< Page size of the buffer is 4096 << log_page_size.
  using last_notified_index = Field<0x108, 24>;  ///< Producer index at the last event.
  using last_solicit_index = Field<0x128, 24>;
  using consumer_counter = Field<0x148, 24>;
  using producer_counter = Field<0x168, 24>;
  using dbr_addr =
      Field<0x1c0, 64>;  ///< Address of the doorbell record. Word 0: consumer index, word 1: arm.
};

/// CqContext::status.
enum class CqStatus : std::uint8_t { ok = 0x0, overflow = 0x9, write_fail = 0xa };
/// CqContext::st.
enum class CqState : std::uint8_t { solicited_armed = 0x6, armed = 0x9, fired = 0xa };

}  // namespace softhca::prm
