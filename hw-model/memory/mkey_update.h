// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "hw-model/memory/mkey.h"

namespace softhca {

/// What a UMR work request asks of a memory key (PRM "UMR"; kernel include/linux/mlx5/device.h,
/// MLX5_MKEY_MASK_*), and the key context of CREATE_MKEY in the same form.
struct MkeyUpdate {
  /// The state that the key must be in before.
  enum class Expect : std::uint8_t { anything, free, valid };

  Expect expect = Expect::anything;
  bool check_qpn = false;    ///< The key must belong to the QP, or to none.
  std::uint64_t fields = 0;  ///< prm::UmrMask: the attributes that `to` changes.
  MkeyAttributes to;
  /// Entries of the translation table, as the driver wrote them: 8 bytes each for pages, 16 for
  /// pieces. Empty: the table stays.
  std::span<const std::uint8_t> list;
  std::uint64_t list_offset = 0;  ///< Place of the list in the table, in units of 16 bytes.
};

/// Unit of a translation list, in bytes.
inline constexpr std::uint64_t kTranslationUnit = 16;

/// Attributes from a memory key context (prm::MkeyContext, 64 bytes). False: an access mode that
/// the device does not have; the mode is then left as it is.
bool read_mkey_attributes(const std::uint8_t* context, MkeyAttributes& attributes);

/// An entry of a list of pages. One that allows neither reads nor writes is absent.
std::uint64_t read_page(const std::uint8_t* entry);
KlmPiece read_piece(const std::uint8_t* entry);

}  // namespace softhca
