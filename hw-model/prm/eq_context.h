// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include "hw-model/prm/field.h"

namespace softhca::prm {

/// Event queue context.
struct EqContext {
  static constexpr std::size_t size = 0x40;

  using status = Field<0x0, 4>;        ///< EqStatus.
  using ec = Field<0xd, 1>;            ///< Events are collapsed.
  using oi = Field<0xe, 1>;            ///< Overrun is ignored.
  using st = Field<0x14, 4>;           ///< EqState.
  using page_offset = Field<0x54, 6>;  ///< First byte of the buffer inside its first page, in units
                                       ///< of page_size / 64.
  using log_eq_size = Field<0x63, 5>;
  using uar_page = Field<0x68, 24>;
  using intr = Field<0xb4, 12>;          ///< MSI-X vector.
  using log_page_size = Field<0xc3, 5>;  ///< Page size of the buffer is 4096 << log_page_size.
  using consumer_counter = Field<0x148, 24>;
  using producer_counter = Field<0x168, 24>;
};

/// EqContext::status.
enum class EqStatus : std::uint8_t { ok = 0x0, write_failure = 0xa };
/// EqContext::st.
enum class EqState : std::uint8_t { armed = 0x9, fired = 0xa };

}  // namespace softhca::prm
