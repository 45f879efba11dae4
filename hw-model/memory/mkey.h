// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace softhca {

/// What an access wants to do, and what a memory key allows: bits may be combined. Local read needs
/// no bit in IBA, but the device has one (mkc.lr).
enum class MemoryAccess : std::uint8_t {
  none = 0,
  local_read = 1,
  local_write = 2,
  remote_read = 4,
  remote_write = 8,
  remote_atomic = 16,
};
constexpr MemoryAccess operator|(MemoryAccess a, MemoryAccess b) {
  return static_cast<MemoryAccess>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}
constexpr bool allows(MemoryAccess granted, MemoryAccess wanted) {
  return (static_cast<unsigned>(granted) & static_cast<unsigned>(wanted)) ==
         static_cast<unsigned>(wanted);
}

/// How a memory key finds the memory (mkc.access_mode).
enum class TranslationMode : std::uint8_t {
  physical = 0,  ///< The virtual address is the I/O virtual address.
  mtt = 1,       ///< A table of pages of equal size.
};

/// "Any QP may use the key" (mkc.qpn).
inline constexpr std::uint32_t kAnyQp = 0xffffff;

/// What CREATE_MKEY (or a UMR) says of a key.
struct MkeyAttributes {
  std::uint8_t variant = 0;  ///< mkey_7_0: low byte of L_Key and R_Key.
  std::uint32_t pd = 0;
  std::uint32_t qpn = kAnyQp;
  MemoryAccess access = MemoryAccess::none;
  bool free = false;               ///< Reserved but not valid for access (mkc.free).
  bool remote_invalidate = false;  ///< mkc.en_rinval.
  bool length64 = false;           ///< All addresses are inside; `length` is ignored.
  std::uint64_t start = 0;
  std::uint64_t length = 0;  ///< Bytes.
  TranslationMode mode = TranslationMode::physical;
  std::uint8_t log_page_size = 12;  ///< Of the translation table, 0..31 (bytes: 1 << n).
};

/// The pages of an MTT, copied at creation. Consecutive pages collapse into one run, so a region
/// that the IOMMU made contiguous costs no table.
class PageTable {
 public:
  PageTable() = default;
  /// `pages`: I/O virtual addresses of pages of 1 << log_page_size bytes; low bits are masked off.
  PageTable(std::span<const std::uint64_t> pages, std::uint8_t log_page_size);

  std::uint64_t size() const { return count_ << log_page_size_; }
  /// Longest contiguous piece that starts at `offset`, at most `length`; `length` is set to it.
  /// `offset` must be below size().
  std::uint64_t translate(std::uint64_t offset, std::uint64_t& length) const;
  bool contiguous() const { return pages_.empty(); }
  /// Entries that take memory: none when contiguous.
  std::size_t entries() const { return pages_.size(); }

 private:
  std::uint64_t base_ = 0;            ///< First page, when contiguous.
  std::uint64_t count_ = 0;           ///< Pages.
  std::vector<std::uint64_t> pages_;  ///< Empty when contiguous.
  std::uint8_t log_page_size_ = 12;
};

/// One memory key.
struct Mkey {
  std::uint32_t index = 0;  ///< 24 bits; key = index << 8 | attributes.variant.
  MkeyAttributes attributes;
  PageTable pages;

  std::uint32_t key() const { return index << 8 | attributes.variant; }
};
static_assert(sizeof(Mkey) <= 256, "A memory region of one run must stay small");

}  // namespace softhca
