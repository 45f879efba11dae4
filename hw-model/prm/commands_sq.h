// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include "hw-model/prm/field.h"
#include "hw-model/prm/srq_context.h"

namespace softhca::prm {

/// SQ context (PRM "SQ Context").
struct SqContext {
  static constexpr std::size_t size = 0xf0;

  using rlky = Field<0x0, 1>;
  using flush_in_error_en = Field<0x3, 1>;
  using state = Field<0x8, 4>;  ///< SqState.
  using reg_umr = Field<0xc, 1>;
  using user_index = Field<0x28, 24>;
  using cqn = Field<0x48, 24>;
  using tis_lst_sz = Field<0x100, 16>;
  using tis_num_0 = Field<0x168, 24>;
  using wq = Block<0x30, 0xc0>;  ///< WqContext.
  static constexpr std::size_t pas_offset = wq::offset + WqContext::size;
};

/// SqContext::state.
enum class SqState : std::uint8_t { reset = 0, ready = 1, error = 3 };

/// CREATE_SQ 0x904: input.
struct CreateSqInput {
  static constexpr std::size_t size = 0x110;

  using ctx = Block<0x20, 0xf0>;  ///< SqContext.
};

/// CREATE_SQ 0x904: output.
struct CreateSqOutput {
  static constexpr std::size_t size = 0x10;

  using sqn = Field<0x48, 24>;
};

/// MODIFY_SQ 0x905: input.
struct ModifySqInput {
  static constexpr std::size_t size = 0x110;

  using sq_state = Field<0x40, 4>;  ///< State that the driver believes the SQ to be in.
  using sqn = Field<0x48, 24>;
  using ctx = Block<0x20, 0xf0>;  ///< SqContext.
};

/// DESTROY_SQ 0x906: input.
struct DestroySqInput {
  static constexpr std::size_t size = 0x10;

  using sqn = Field<0x48, 24>;
};

/// QUERY_SQ 0x907: input.
struct QuerySqInput {
  static constexpr std::size_t size = 0x10;

  using sqn = Field<0x48, 24>;
};

/// QUERY_SQ 0x907: output.
struct QuerySqOutput {
  static constexpr std::size_t size = 0x110;

  using sq_context = Block<0x20, 0xf0>;  ///< SqContext.
};

}  // namespace softhca::prm
