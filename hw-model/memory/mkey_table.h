// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "hw-model/memory/dma_space.h"
#include "hw-model/memory/mkey.h"

namespace softhca {

/// Outcome of an access through a memory key. Everything but ok and pending is a protection error;
/// which one the application sees depends on the side (local protection, remote access).
enum class MemoryStatus : std::uint8_t {
  ok,
  pending,        ///< Park the operation, repeat it when memory has arrived.
  invalid_key,    ///< No such index, other variant byte, free or invalidated.
  wrong_pd,       ///< Key of another protection domain, or bound to another QP.
  not_permitted,  ///< The key does not allow this kind of access.
  out_of_bounds,  ///< Outside [start, start + length), or past the translation table.
  dma_fault,      ///< The IOMMU does not let the device reach the memory.
};
const char* to_string(MemoryStatus status);

/// On whose behalf an access is made.
struct MemoryContext {
  std::uint32_t pd = 0;
  std::uint32_t qpn = kAnyQp;
  bool reserved_lkey = false;      ///< The reserved L_Key may be used (qpc.rlky).
  bool any_pd = false;             ///< A QP that only registers memory: for keys of every domain.
  bool fast_registration = false;  ///< Lists of pages may be written by UMR (qpc.fre).
};

/// Keeps the protection domain of a key from going away while the key belongs to it.
class ProtectionDomainUse {
 public:
  virtual ~ProtectionDomainUse() = default;
  /// The key moves to `pd`. False: no such domain, nothing changed.
  virtual bool move_key(std::uint32_t mkey_index, std::uint32_t pd) = 0;
};

struct MkeyUpdate;

/// Every memory key of a function, and every access through one.
class MkeyTable {
 public:
  /// `first_index`, `limit`: indexes handed out are in [first_index, limit), limit <= 2^24.
  /// `max_page_entries`: of the page tables of all keys together.
  explicit MkeyTable(DmaSpace& dma, std::uint32_t first_index = 1, std::uint32_t limit = 1U << 24,
                     std::size_t max_page_entries = kMaxPageEntries);
  /// 128 MiB of tables: 64 GiB in scattered pages of 4 KiB.
  static constexpr std::size_t kMaxPageEntries = std::size_t{1} << 24;
  /// Keys that an access may go through before it comes to one with pages.
  static constexpr unsigned kMaxIndirection = 4;
  /// Contiguous pieces of memory that one access through an indirect key may touch: bounds what a
  /// packet costs.
  static constexpr unsigned kMaxIndirectPieces = 1024;
  /// Entries that an indirect key may have.
  static constexpr std::size_t kMaxKlmEntries = std::size_t{1} << 16;
  /// Pages that a table may have to be changed by UMR: bounds what one work request costs.
  static constexpr std::size_t kMaxUmrPages = std::size_t{1} << 21;

  /// CREATE_MKEY. Returns the index; none when the table is full, or with this key's pages would
  /// be.
  std::optional<std::uint32_t> create(const MkeyAttributes& attributes,
                                      std::span<const std::uint64_t> pages);
  /// As create(), for a key with a list of pieces of other keys.
  std::optional<std::uint32_t> create_indirect(const MkeyAttributes& attributes,
                                               std::span<const KlmPiece> pieces);
  /// As create(), at an index that was given back by destroy() (mkey_by_name). False: it is not
  /// free, or there is no room for the pages.
  bool create_at(std::uint32_t index, const MkeyAttributes& attributes,
                 std::span<const std::uint64_t> pages);
  bool create_indirect_at(std::uint32_t index, const MkeyAttributes& attributes,
                          std::span<const KlmPiece> pieces);
  /// DESTROY_MKEY. False: no such index.
  bool destroy(std::uint32_t index);
  /// No access by the key any more, which keeps its pages: until restore().
  void revoke(std::uint32_t index);
  /// The key is valid, under this variant byte.
  void restore(std::uint32_t index, std::uint8_t variant);
  void clear();
  /// By index, whatever the variant byte; null if there is none.
  Mkey* find(std::uint32_t index) {
    // What is below the first index wraps to far beyond the last.
    const std::size_t slot = index - first_index_;
    return slot < keys_.size() ? keys_[slot].get() : nullptr;
  }
  const Mkey* find(std::uint32_t index) const {
    const std::size_t slot = index - first_index_;
    return slot < keys_.size() ? keys_[slot].get() : nullptr;
  }
  std::size_t size() const { return size_; }
  /// Page table entries in use by all keys.
  std::size_t page_entries() const { return page_entries_; }

  /// The L_Key that stands for "the address is an I/O virtual address"
  /// (QUERY_SPECIAL_CONTEXTS.resd_lkey). 0 (initially): there is none.
  void set_reserved_lkey(std::uint32_t lkey) { reserved_lkey_ = lkey; }
  std::uint32_t reserved_lkey() const { return reserved_lkey_; }

  /// Checks an access without making it. Length 0 passes whatever the key (IBA 9.7.4.1.5
  /// "zero-length"). Behind an indirect key only the first few pieces are looked at, the others
  /// when they are accessed.
  MemoryStatus check(std::uint32_t key, const MemoryContext& context, std::uint64_t va,
                     std::uint64_t length, MemoryAccess access);
  MemoryStatus read(std::uint32_t key, const MemoryContext& context, std::uint64_t va, void* to,
                    std::uint64_t length, MemoryAccess access);
  MemoryStatus write(std::uint32_t key, const MemoryContext& context, std::uint64_t va,
                     const void* from, std::uint64_t length, MemoryAccess access);
  /// Like write(), last cache line last (DmaSpace::write_ordered).
  MemoryStatus write_ordered(std::uint32_t key, const MemoryContext& context, std::uint64_t va,
                             const void* from, std::uint64_t length, MemoryAccess access);
  /// Direct pointer to the range; null when it is not in one directly mapped piece (then use
  /// read/write). `status` tells whether the access is allowed at all.
  std::byte* try_span(std::uint32_t key, const MemoryContext& context, std::uint64_t va,
                      std::uint64_t length, MemoryAccess access, MemoryStatus& status);

  /// The same if it is an access that is allowed, to a key whose whole memory is one known piece,
  /// as most keys in use have; null: nothing is known, or the access is refused. `length` >= 1.
  std::byte* quick_span(std::uint32_t key, const MemoryContext& context, std::uint64_t va,
                        std::uint64_t length, MemoryAccess access) const {
    return quick_span(key, context.pd, context.qpn, va, length, access);
  }
  std::byte* quick_span(std::uint32_t key, std::uint32_t pd, std::uint32_t qpn, std::uint64_t va,
                        std::uint64_t length, MemoryAccess access) const {
    const Mkey* mkey = find(key >> 8);
    if (mkey == nullptr || mkey->direct.generation != dma_.generation()) return nullptr;
    const MkeyAttributes& attributes = mkey->attributes;
    // Keys do not wrap: an address below the start is an offset beyond the end.
    const std::uint64_t offset = va - attributes.start;
    const bool may = attributes.variant == (key & 0xff) && attributes.pd == pd &&
                     (attributes.qpn == kAnyQp || attributes.qpn == qpn) &&
                     allows(mkey->direct.allowed, access) && offset < attributes.length &&
                     length <= attributes.length - offset;
    return may ? mkey->direct.base + offset : nullptr;
  }

  /// Either of them, for who does not care why there is none.
  std::byte* span(std::uint32_t key, const MemoryContext& context, std::uint64_t va,
                  std::uint64_t length, MemoryAccess access) {
    if (std::byte* known = quick_span(key, context, va, length, access)) return known;
    MemoryStatus status = MemoryStatus::ok;
    return try_span(key, context, va, length, access, status);
  }

  /// One 8-byte atomic on memory; `va` must be 8-byte aligned (caller checks). `operate` maps the
  /// old memory word (as stored) to the new one; it may be called several times. Directly mapped
  /// memory is changed by an atomic instruction, so CPUs and other devices see it whole.
  template <typename Operate>
  MemoryStatus atomic64(std::uint32_t key, const MemoryContext& context, std::uint64_t va,
                        Operate&& operate, std::uint64_t& old_word) {
    MemoryStatus status = MemoryStatus::ok;
    std::byte* direct = try_span(key, context, va, 8, MemoryAccess::remote_atomic, status);
    if (status != MemoryStatus::ok) return status;
    if (direct != nullptr && reinterpret_cast<std::uintptr_t>(direct) % 8 == 0) {
      auto* word = reinterpret_cast<std::uint64_t*>(direct);
      old_word = __atomic_load_n(word, __ATOMIC_ACQUIRE);
      while (!__atomic_compare_exchange_n(word, &old_word, operate(old_word), true,
                                          __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
      }
      return MemoryStatus::ok;
    }
    status = read(key, context, va, &old_word, 8, MemoryAccess::remote_atomic);
    if (status != MemoryStatus::ok) return status;
    const std::uint64_t new_word = operate(old_word);
    return write(key, context, va, &new_word, 8, MemoryAccess::remote_atomic);
  }

  /// A UMR work request on the key with this index (the variant byte counts only where the request
  /// neither names a new one nor finds the key free). All or nothing. not_permitted: the key is not
  /// for UMR, in another state than asked for, of pages and the QP may not write those, or a field
  /// cannot be changed; out_of_bounds: the list is longer than the table, or the range wraps.
  MemoryStatus update(std::uint32_t key, const MemoryContext& context, const MkeyUpdate& update);
  /// Bytes of lists and tables that the last update() looked at, about.
  std::uint64_t update_cost() const { return update_cost_; }
  /// Who is asked when update() moves a key to another protection domain; null: nobody.
  void set_pd_use(ProtectionDomainUse* pd_use) { pd_use_ = pd_use; }

  /// Remote invalidate by SEND with invalidate (IBA 10.6.5): the key must allow it, and belong to
  /// the protection domain and to the QP or none.
  MemoryStatus invalidate(std::uint32_t key, const MemoryContext& context);

 private:
  struct Target;
  /// Finds out whether the key's memory is one directly mapped piece.
  void learn_direct(Mkey& mkey);
  MemoryStatus resolve(std::uint32_t key, const MemoryContext& context, std::uint64_t va,
                       std::uint64_t length, MemoryAccess access, Target& target) const;
  /// Like resolve(), through indirect keys to where the first byte is. `length` becomes that of
  /// the contiguous piece there.
  MemoryStatus locate(std::uint32_t key, const MemoryContext& context, std::uint64_t va,
                      std::uint64_t& length, MemoryAccess access, std::uint64_t& iova) const;
  MemoryStatus check_update(const Mkey& mkey, std::uint32_t key, const MemoryContext& context,
                            const MkeyUpdate& update) const;
  MemoryStatus check_list(const Mkey& mkey, const MkeyUpdate& update) const;
  void apply_list(Mkey& mkey, const MkeyUpdate& update);
  template <typename Piece>
  MemoryStatus for_each_piece(std::uint32_t key, const MemoryContext& context, std::uint64_t va,
                              std::uint64_t length, MemoryAccess access, Piece&& piece);

  DmaSpace& dma_;
  std::uint32_t first_index_;
  std::uint32_t limit_;
  std::uint32_t reserved_lkey_ = 0;
  std::vector<std::unique_ptr<Mkey>> keys_;  ///< By index - first_index_.
  /// Null: the tables do not fit.
  template <typename Entry>
  std::unique_ptr<Mkey> make_key(const MkeyAttributes& attributes,
                                 std::span<const Entry> entries) const;
  std::optional<std::uint32_t> place_anywhere(std::unique_ptr<Mkey> key);
  bool place_at(std::uint32_t index, std::unique_ptr<Mkey> key);
  void place(std::uint32_t index, std::unique_ptr<Mkey> key);

  ProtectionDomainUse* pd_use_ = nullptr;
  std::vector<std::uint64_t> new_pages_;  ///< List of a UMR being executed.
  std::vector<KlmPiece> new_pieces_;
  std::uint64_t update_cost_ = 0;

  std::deque<std::uint32_t> released_;  ///< Indexes to use again, oldest first.
  std::size_t size_ = 0;
  std::size_t max_page_entries_;
  std::size_t page_entries_ = 0;
};

}  // namespace softhca
