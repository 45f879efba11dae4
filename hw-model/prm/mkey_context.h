// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include "hw-model/prm/field.h"

namespace softhca::prm {

/// Memory key context.
struct MkeyContext {
  static constexpr std::size_t size = 0x40;

  using free = Field<0x1, 1>;             ///< 1: reserved, not usable for access (state "free").
  using access_mode_4_2 = Field<0x3, 3>;  ///< High bits of MkeyAccessMode.
  using relaxed_ordering_write = Field<0xd, 1>;
  using small_fence_on_rdma_read_response = Field<0xf, 1>;
  using umr_en = Field<0x10, 1>;           ///< Memory may be changed by UMR work requests.
  using a = Field<0x11, 1>;                ///< Remote atomics allowed.
  using rw = Field<0x12, 1>;               ///< Remote write allowed.
  using rr = Field<0x13, 1>;               ///< Remote read allowed.
  using lw = Field<0x14, 1>;               ///< Local write allowed.
  using lr = Field<0x15, 1>;               ///< Local read allowed.
  using access_mode_1_0 = Field<0x16, 2>;  ///< Low bits of MkeyAccessMode.
  using ma_translation_mode = Field<0x1a, 2>;
  using qpn = Field<0x20, 24>;      ///< QP that may use the key, kMkeyAnyQp for all.
  using mkey_7_0 = Field<0x38, 8>;  ///< Variant byte: low 8 bits of L_Key and R_Key.
  using length64 = Field<0x60, 1>;  ///< Covers the whole address space, len is not looked at.
  using bsf_en = Field<0x61, 1>;
  using sync_umr = Field<0x62, 1>;
  using expected_sigerr_count = Field<0x65, 1>;
  using en_rinval = Field<0x67, 1>;    ///< Remote invalidation allowed.
  using pd = Field<0x68, 24>;          ///< Protection domain.
  using start_addr = Field<0x80, 64>;  ///< First virtual address.
  using len = Field<0xc0, 64>;         ///< Length in bytes.
  using bsf_octword_size = Field<0x100, 32>;
  using translations_octword_size =
      Field<0x1a0, 32>;  ///< Size of the translation table in 16 byte units.
  using relaxed_ordering_read = Field<0x1d9, 1>;
  using log_page_size =
      Field<0x1db, 5>;  ///< Page of the translation table is 1 << log_page_size (0 when not paged).
};

/// QP number in a context that means "any".
inline constexpr std::uint32_t kMkeyAnyQp = 0xffffff;
/// Access mode of a memory key (access_mode_4_2 << 2 | access_mode_1_0).
enum class MkeyAccessMode : std::uint8_t {
  pa = 0,
  mtt = 1,
  klms = 2,
  ksm = 3,
  sw_icm = 4,
  memic = 5
};

/// Entry of a list of physical pages: bits 63:12 address, the rest flags.
struct MttEntry {
  static constexpr std::size_t size = 0x8;

  using ptag = Field<0x0, 64>;   ///< Whole word; mask the low 12 bits off for the address.
  using wr_en = Field<0x3e, 1>;  ///< Writes allowed.
  using rd_en = Field<0x3f, 1>;  ///< Reads allowed.
};

}  // namespace softhca::prm
