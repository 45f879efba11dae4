// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include "hw-model/prm/field.h"

namespace softhca::prm {

// Commands on memory keys.

/// CREATE_MKEY 0x200: input.
struct CreateMkeyInput {
  static constexpr std::size_t size = 0x110;

  using input_mkey_index =
      Field<0x48, 24>;               ///< The index to use (mkey_by_name); 0: the device's choice.
  using pg_access = Field<0x60, 1>;  ///< The list gives no access by itself.
  using mkey_umem_valid = Field<0x61, 1>;
  using memory_key_mkey_entry = Block<0x10, 0x40>;
  /// Softhca's own, reserved in the PRM: I/O virtual address of a record in an MkeyStatePage
  /// (hw-model/runtime/mkey_state.h); 0: none. For keys with a list of pages that are not free.
  using state_record = Field<0x280, 64>;
  using translations_octword_actual_size =
      Field<0x300, 32>;  ///< 16 byte units of the list that follows.
  static constexpr std::size_t klm_pas_mtt_offset = 0x110;
};

/// CREATE_MKEY 0x200: output.
struct CreateMkeyOutput {
  static constexpr std::size_t size = 0x10;

  using mkey_index = Field<0x48, 24>;
};

/// QUERY_MKEY 0x201: input.
struct QueryMkeyInput {
  static constexpr std::size_t size = 0x10;

  using mkey_index = Field<0x48, 24>;
  using pg_access = Field<0x60, 1>;
};

/// QUERY_MKEY 0x201: output.
struct QueryMkeyOutput {
  static constexpr std::size_t size = 0x130;

  using memory_key_mkey_entry = Block<0x10, 0x40>;
  using bsf0_klm0_pas_mtt0_1 = Block<0x110, 0x10>;
  using bsf1_klm1_pas_mtt2_3 = Block<0x120, 0x10>;
};

/// DESTROY_MKEY 0x202: input.
struct DestroyMkeyInput {
  static constexpr std::size_t size = 0x10;

  using mkey_index = Field<0x48, 24>;
};

}  // namespace softhca::prm
