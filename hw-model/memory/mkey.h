// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
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
constexpr MemoryAccess operator&(MemoryAccess a, MemoryAccess b) {
  return static_cast<MemoryAccess>(static_cast<unsigned>(a) & static_cast<unsigned>(b));
}
constexpr bool allows(MemoryAccess granted, MemoryAccess wanted) {
  return (static_cast<unsigned>(granted) & static_cast<unsigned>(wanted)) ==
         static_cast<unsigned>(wanted);
}

/// How a memory key finds the memory (mkc.access_mode).
enum class TranslationMode : std::uint8_t {
  physical = 0,  ///< The virtual address is the I/O virtual address.
  mtt = 1,       ///< A table of pages of equal size.
  klm = 2,       ///< A list of pieces of other keys' memory, each with its length.
  ksm = 3,       ///< A list of pieces of other keys' memory, of equal size.
};
/// The table names other keys instead of pages.
constexpr bool is_indirect(TranslationMode mode) {
  return mode == TranslationMode::klm || mode == TranslationMode::ksm;
}

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
  std::uint8_t log_page_size = 12;  ///< Page or KSM piece, 0..31 (bytes: 1 << n).
  bool umr_enabled = false;         ///< mkc.umr_en: UMR work requests may change the key.
  std::uint32_t capacity = 0;       ///< Of the table for UMR, in units of 16 bytes.
};

/// An entry of a page table that leads nowhere: no range of host memory reaches so high.
inline constexpr std::uint64_t kAbsentPage = ~0ULL;

/// The pages of an MTT, as copies. Consecutive pages collapse into one run, so a region that the
/// IOMMU made contiguous costs no table.
class PageTable {
 public:
  PageTable() = default;
  /// `pages`: I/O virtual addresses of pages of 1 << log_page_size bytes; lower bits are not
  /// looked at. Absent ones at the end are not kept.
  PageTable(std::span<const std::uint64_t> pages, std::uint8_t log_page_size);

  /// Pages from `first` on become `pages`; the table grows to hold them, others stay as they are.
  void replace(std::size_t first, std::span<const std::uint64_t> pages);
  /// The same entries are pages of another size now.
  void set_log_page_size(std::uint8_t log_page_size);
  /// No pages. Room for a short list is kept.
  void clear();

  std::uint64_t size() const { return count_ << log_page_size_; }
  /// Longest contiguous piece that starts at `offset`, at most `length`; `length` is set to it.
  /// `offset` must be below size().
  std::uint64_t translate(std::uint64_t offset, std::uint64_t& length) const;
  bool contiguous() const { return pages_.empty(); }
  std::uint64_t count() const { return count_; }  ///< Pages.
  /// Entries that take memory: none when contiguous.
  std::size_t entries() const { return pages_.size(); }

 private:
  std::uint64_t page_mask() const { return ~((1ULL << log_page_size_) - 1); }
  void assign(std::span<const std::uint64_t> pages);
  /// `pages` are what the run already says, or prolong it.
  bool continues_run(std::size_t first, std::span<const std::uint64_t> pages) const;
  void expand();
  void collapse();

  std::uint64_t base_ = 0;            ///< First page, when contiguous.
  std::uint64_t count_ = 0;           ///< Pages.
  std::vector<std::uint64_t> pages_;  ///< Empty when contiguous.
  std::uint8_t log_page_size_ = 12;
};

/// A piece of the memory of another key (PRM "KLM"); KSM pieces have the table's length instead.
struct KlmPiece {
  std::uint64_t address = 0;
  std::uint32_t key = 0;
  std::uint32_t length = 0;  ///< Bytes.
};

/// The list of an indirect key.
class KlmTable {
 public:
  /// Pieces from `first` on become `pieces`; the table grows to hold them.
  void replace(std::size_t first, std::span<const KlmPiece> pieces);
  void clear();
  /// Bytes of all pieces.
  std::uint64_t size() const { return ends_.empty() ? 0 : ends_.back(); }
  std::size_t entries() const { return pieces_.size(); }
  const KlmPiece& at(std::size_t index) const { return pieces_[index]; }
  /// The piece that holds byte `offset`, which is below size(); `skip` becomes its place there.
  const KlmPiece& find(std::uint64_t offset, std::uint64_t& skip) const;

 private:
  std::vector<KlmPiece> pieces_;
  std::vector<std::uint64_t> ends_;  ///< Bytes of the pieces up to and with this one.
};

/// The memory of a whole key as one directly mapped piece, kept from one access to the next.
struct DirectMemory {
  std::byte* base = nullptr;     ///< Of the key's first byte.
  std::uint64_t generation = 0;  ///< Of the DmaSpace; another one, or 0: not known.
  /// What the key allows and the mapping does not forbid.
  MemoryAccess allowed = MemoryAccess::none;
};

/// One memory key.
struct Mkey {
  std::uint32_t index = 0;  ///< 24 bits; key = index << 8 | attributes.variant.
  MkeyAttributes attributes;
  PageTable pages;
  KlmTable klms;
  DirectMemory direct;

  std::uint32_t key() const { return index << 8 | attributes.variant; }
  /// What its tables take, in page table entries of 8 bytes.
  std::size_t table_entries() const { return pages.entries() + klms.entries() * kPieceWeight; }
  static constexpr std::size_t kPieceWeight = 3;
};
static_assert(sizeof(Mkey) <= 256, "A memory region of one run must stay small");

}  // namespace softhca
