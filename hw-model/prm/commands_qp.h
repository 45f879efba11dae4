// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include "hw-model/prm/field.h"

namespace softhca::prm {

// Commands on queue pairs. All transitions (RST2INIT ... 2RST) share the layout of ModifyQpInput.

/// CREATE_QP 0x500: input.
struct CreateQpInput {
  static constexpr std::size_t size = 0x110;

  using input_qpn = Field<0x48, 24>;
  using opt_param_mask = Field<0x80, 32>;
  using ece = Field<0xa0, 32>;
  using qpc = Block<0x18, 0xe8>;
  using wq_umem_valid = Field<0x860, 1>;
  static constexpr std::size_t pas_offset = 0x110;
};

/// CREATE_QP 0x500: output.
struct CreateQpOutput {
  static constexpr std::size_t size = 0x10;

  using qpn = Field<0x48, 24>;
  using ece = Field<0x60, 32>;
};

/// DESTROY_QP 0x501: input.
struct DestroyQpInput {
  static constexpr std::size_t size = 0x10;

  using qpn = Field<0x48, 24>;
};

/// QUERY_QP 0x50b: input.
struct QueryQpInput {
  static constexpr std::size_t size = 0x10;

  using qpn = Field<0x48, 24>;
};

/// QUERY_QP 0x50b: output.
struct QueryQpOutput {
  static constexpr std::size_t size = 0x110;

  using opt_param_mask = Field<0x80, 32>;
  using ece = Field<0xa0, 32>;
  using qpc = Block<0x18, 0xe8>;
  static constexpr std::size_t pas_offset = 0x110;
};

/// Transitions of a QP: input.
struct ModifyQpInput {
  static constexpr std::size_t size = 0x110;

  using qpn = Field<0x48, 24>;
  using opt_param_mask = Field<0x80, 32>;  ///< QpOptParam bits.
  using ece = Field<0xa0, 32>;
  using qpc = Block<0x18, 0xe8>;
};

/// Transitions of a QP: output.
struct ModifyQpOutput {
  static constexpr std::size_t size = 0x10;

  using ece = Field<0x60, 32>;
};

}  // namespace softhca::prm
