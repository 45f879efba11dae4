// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/memory/mkey_table.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <type_traits>
#include <utility>

namespace softhca {

const char* to_string(MemoryStatus status) {
  switch (status) {
    case MemoryStatus::ok:
      return "ok";
    case MemoryStatus::pending:
      return "memory has not arrived yet";
    case MemoryStatus::invalid_key:
      return "no such memory key";
    case MemoryStatus::wrong_pd:
      return "memory key of another protection domain";
    case MemoryStatus::not_permitted:
      return "access not permitted by the memory key";
    case MemoryStatus::out_of_bounds:
      return "address outside the memory key";
    case MemoryStatus::dma_fault:
      return "memory not mapped for the device";
  }
  return "unknown";
}

namespace {

/// An index is used again only after this many others were given back, so that a stale key meets no
/// successor.
constexpr std::size_t kReuseDistance = 1U << 16;

MemoryStatus from_dma(DmaStatus status) {
  switch (status) {
    case DmaStatus::ok:
      return MemoryStatus::ok;
    case DmaStatus::pending:
      return MemoryStatus::pending;
    case DmaStatus::fault:
      break;
  }
  return MemoryStatus::dma_fault;
}

constexpr MemoryAccess kReads = MemoryAccess::local_read | MemoryAccess::remote_read;
constexpr MemoryAccess kWrites =
    MemoryAccess::local_write | MemoryAccess::remote_write | MemoryAccess::remote_atomic;

DmaAccess dma_access(MemoryAccess access) {
  return allows(kReads, access) ? DmaAccess::read : DmaAccess::write;
}

/// What an access through an indirect key may do to the memory behind it: as a local one of the
/// window's owner.
MemoryAccess inner_access(MemoryAccess access) {
  return dma_access(access) == DmaAccess::read ? MemoryAccess::local_read
                                               : MemoryAccess::local_write;
}

}  // namespace

/// Where an access goes once it is allowed: an I/O virtual address, an offset in a page table, or
/// an offset in the list of an indirect key.
struct MkeyTable::Target {
  const PageTable* pages = nullptr;
  const Mkey* indirect = nullptr;
  std::uint64_t address = 0;

  /// Start of the longest contiguous piece at `done`; `length` becomes its length.
  std::uint64_t piece(std::uint64_t done, std::uint64_t& length) const {
    return pages == nullptr ? address + done : pages->translate(address + done, length);
  }
};

MkeyTable::MkeyTable(DmaSpace& dma, std::uint32_t first_index, std::uint32_t limit,
                     std::size_t max_page_entries)
    : dma_(dma),
      first_index_(first_index),
      limit_(std::min(limit, 1U << 24)),
      max_page_entries_(max_page_entries) {}

std::optional<std::uint32_t> MkeyTable::create(const MkeyAttributes& attributes,
                                               std::span<const std::uint64_t> pages) {
  return place_anywhere(make_key(attributes, pages));
}

std::optional<std::uint32_t> MkeyTable::create_indirect(const MkeyAttributes& attributes,
                                                        std::span<const KlmPiece> pieces) {
  return place_anywhere(make_key(attributes, pieces));
}

bool MkeyTable::create_at(std::uint32_t index, const MkeyAttributes& attributes,
                          std::span<const std::uint64_t> pages) {
  return place_at(index, make_key(attributes, pages));
}

bool MkeyTable::create_indirect_at(std::uint32_t index, const MkeyAttributes& attributes,
                                   std::span<const KlmPiece> pieces) {
  return place_at(index, make_key(attributes, pieces));
}

template <typename Entry>
std::unique_ptr<Mkey> MkeyTable::make_key(const MkeyAttributes& attributes,
                                          std::span<const Entry> entries) const {
  auto key = std::make_unique<Mkey>();
  key->attributes = attributes;
  if constexpr (std::is_same_v<Entry, KlmPiece>) {
    if (is_indirect(attributes.mode)) key->klms.replace(0, entries);
  } else if (attributes.mode == TranslationMode::mtt) {
    key->pages = PageTable(entries, attributes.log_page_size);
  }
  if (key->table_entries() > max_page_entries_ - page_entries_) return nullptr;
  return key;
}

std::optional<std::uint32_t> MkeyTable::place_anywhere(std::unique_ptr<Mkey> key) {
  if (key == nullptr) return std::nullopt;
  std::uint32_t index = 0;
  if (first_index_ + keys_.size() < limit_ && released_.size() < kReuseDistance) {
    index = first_index_ + static_cast<std::uint32_t>(keys_.size());
    keys_.emplace_back();
  } else if (!released_.empty()) {
    index = released_.front();
    released_.pop_front();
  } else {
    return std::nullopt;
  }
  place(index, std::move(key));
  return index;
}

bool MkeyTable::place_at(std::uint32_t index, std::unique_ptr<Mkey> key) {
  if (key == nullptr) return false;
  // The wanted one is commonly the last that was given back.
  const auto released = std::find(released_.rbegin(), released_.rend(), index);
  if (released == released_.rend()) return false;
  released_.erase(std::next(released).base());
  place(index, std::move(key));
  return true;
}

void MkeyTable::place(std::uint32_t index, std::unique_ptr<Mkey> key) {
  key->index = index;
  page_entries_ += key->table_entries();
  keys_[index - first_index_] = std::move(key);
  ++size_;
}

bool MkeyTable::destroy(std::uint32_t index) {
  const Mkey* key = find(index);
  if (key == nullptr) return false;
  dma_.revoke();
  page_entries_ -= key->table_entries();
  keys_[index - first_index_].reset();
  released_.push_back(index);
  --size_;
  return true;
}

void MkeyTable::revoke(std::uint32_t index) {
  Mkey* key = find(index);
  if (key == nullptr || key->attributes.free) return;
  dma_.revoke();
  key->attributes.free = true;
  key->direct = {};
}

void MkeyTable::restore(std::uint32_t index, std::uint8_t variant) {
  Mkey* key = find(index);
  if (key == nullptr) return;
  MkeyAttributes& attributes = key->attributes;
  if (!attributes.free && attributes.variant == variant) return;
  // Under its old name the key ends here.
  dma_.revoke();
  attributes.free = false;
  attributes.variant = variant;
  key->direct = {};
}

void MkeyTable::clear() {
  dma_.revoke();
  keys_.clear();
  released_.clear();
  size_ = 0;
  page_entries_ = 0;
}

namespace {

/// What of a key has nothing to do with the address.
MemoryStatus may_use(const MkeyAttributes& attributes, std::uint32_t key,
                     const MemoryContext& context, MemoryAccess access) {
  if (attributes.free || attributes.variant != (key & 0xff)) return MemoryStatus::invalid_key;
  const bool other_qp = attributes.qpn != kAnyQp && attributes.qpn != context.qpn;
  if ((attributes.pd != context.pd && !context.any_pd) || other_qp) return MemoryStatus::wrong_pd;
  return allows(attributes.access, access) ? MemoryStatus::ok : MemoryStatus::not_permitted;
}

bool in_range(const MkeyAttributes& attributes, std::uint64_t va, std::uint64_t length) {
  const std::uint64_t offset = va - attributes.start;
  return va >= attributes.start && offset <= attributes.length &&
         length <= attributes.length - offset;
}

}  // namespace

void MkeyTable::learn_direct(Mkey& mkey) {
  const MkeyAttributes& attributes = mkey.attributes;
  const bool one_run = attributes.mode == TranslationMode::mtt && mkey.pages.contiguous();
  if (mkey.direct.generation == dma_.generation() || !one_run || attributes.length64) return;
  mkey.direct = {.generation = dma_.generation()};
  const std::uint64_t in_page = attributes.start & ((1ULL << attributes.log_page_size) - 1);
  const std::uint64_t size = mkey.pages.size();
  if (attributes.length == 0 || in_page >= size || attributes.length > size - in_page) return;
  std::uint64_t run = attributes.length;
  const std::uint64_t iova = mkey.pages.translate(in_page, run);
  std::byte* readable = dma_.try_span(iova, run, DmaAccess::read);
  std::byte* writable = dma_.try_span(iova, run, DmaAccess::write);
  mkey.direct.base = readable != nullptr ? readable : writable;
  MemoryAccess reachable = MemoryAccess::none;
  if (readable != nullptr) reachable = reachable | kReads;
  if (writable != nullptr) reachable = reachable | kWrites;
  mkey.direct.allowed = attributes.access & reachable;
}

MemoryStatus MkeyTable::resolve(std::uint32_t key, const MemoryContext& context, std::uint64_t va,
                                std::uint64_t length, MemoryAccess access, Target& target) const {
  if (reserved_lkey_ != 0 && key == reserved_lkey_) {
    if (!context.reserved_lkey) return MemoryStatus::invalid_key;
    if (!allows(MemoryAccess::local_read | MemoryAccess::local_write, access)) {
      return MemoryStatus::not_permitted;
    }
    target.address = va;
    return MemoryStatus::ok;
  }
  const Mkey* mkey = find(key >> 8);
  if (mkey == nullptr) return MemoryStatus::invalid_key;
  const MkeyAttributes& attributes = mkey->attributes;
  const MemoryStatus use = may_use(attributes, key, context, access);
  if (use != MemoryStatus::ok) return use;
  if (!attributes.length64 && !in_range(attributes, va, length)) return MemoryStatus::out_of_bounds;
  if (attributes.mode == TranslationMode::physical) {
    target.address = va;
    return MemoryStatus::ok;
  }
  if (attributes.mode == TranslationMode::klm) {
    const std::uint64_t offset = va - attributes.start;
    const std::uint64_t size = mkey->klms.size();
    if (va < attributes.start || offset > size || length > size - offset) {
      return MemoryStatus::out_of_bounds;
    }
    target.indirect = mkey;
    target.address = offset;
    return MemoryStatus::ok;
  }
  // The first page of the table holds `start`.
  const std::uint64_t page_mask = (1ULL << attributes.log_page_size) - 1;
  const std::uint64_t first_page = attributes.start & ~page_mask;
  const std::uint64_t offset = va - first_page;
  const bool fixed_pieces = attributes.mode == TranslationMode::ksm;
  const std::uint64_t size = fixed_pieces
                                 ? std::uint64_t{mkey->klms.entries()} << attributes.log_page_size
                                 : mkey->pages.size();
  if (va < first_page || offset > size || length > size - offset) {
    return MemoryStatus::out_of_bounds;
  }
  if (fixed_pieces) {
    target.indirect = mkey;
  } else {
    target.pages = &mkey->pages;
  }
  target.address = offset;
  return MemoryStatus::ok;
}

MemoryStatus MkeyTable::locate(std::uint32_t key, const MemoryContext& context, std::uint64_t va,
                               std::uint64_t& length, MemoryAccess access,
                               std::uint64_t& iova) const {
  for (unsigned level = 0; level <= kMaxIndirection; ++level) {
    Target target;
    const MemoryStatus status = resolve(key, context, va, length, access, target);
    if (status != MemoryStatus::ok) return status;
    if (target.indirect == nullptr) {
      iova = target.piece(0, length);
      return MemoryStatus::ok;
    }
    const Mkey& outer = *target.indirect;
    std::uint64_t skip = 0;
    std::uint64_t piece_size = 0;
    const KlmPiece* piece = nullptr;
    if (outer.attributes.mode == TranslationMode::ksm) {
      piece_size = 1ULL << outer.attributes.log_page_size;
      piece = &outer.klms.at(target.address >> outer.attributes.log_page_size);
      skip = target.address & (piece_size - 1);
    } else {
      piece = &outer.klms.find(target.address, skip);
      piece_size = piece->length;
    }
    length = std::min(length, piece_size - skip);
    key = piece->key;
    va = piece->address + skip;
    access = inner_access(access);
  }
  return MemoryStatus::out_of_bounds;  // Too deep, or in a circle.
}

/// piece(iova, offset in buffer, length) for each contiguous piece; stops at the first that is not
/// ok.
template <typename Piece>
MemoryStatus MkeyTable::for_each_piece(std::uint32_t key, const MemoryContext& context,
                                       std::uint64_t va, std::uint64_t length, MemoryAccess access,
                                       Piece&& piece) {
  if (length == 0) return MemoryStatus::ok;
  Target target;
  const MemoryStatus status = resolve(key, context, va, length, access, target);
  if (status != MemoryStatus::ok) return status;
  unsigned pieces = 0;
  for (std::uint64_t done = 0; done < length;) {
    std::uint64_t run = length - done;
    std::uint64_t iova = 0;
    if (target.indirect == nullptr) {
      iova = target.piece(done, run);
    } else {
      if (++pieces > kMaxIndirectPieces) return MemoryStatus::out_of_bounds;
      const MemoryStatus found = locate(key, context, va + done, run, access, iova);
      if (found != MemoryStatus::ok) return found;
    }
    const DmaStatus moved = piece(iova, done, run);
    if (moved != DmaStatus::ok) return from_dma(moved);
    done += run;
  }
  return MemoryStatus::ok;
}

MemoryStatus MkeyTable::check(std::uint32_t key, const MemoryContext& context, std::uint64_t va,
                              std::uint64_t length, MemoryAccess access) {
  constexpr unsigned kPiecesAhead = 16;
  if (length == 0 || quick_span(key, context, va, length, access) != nullptr) {
    return MemoryStatus::ok;
  }
  Target target;
  MemoryStatus status = resolve(key, context, va, length, access, target);
  if (target.indirect == nullptr) return status;
  std::uint64_t done = 0;
  for (unsigned i = 0; i < kPiecesAhead && done < length && status == MemoryStatus::ok; ++i) {
    std::uint64_t run = length - done;
    std::uint64_t iova = 0;
    status = locate(key, context, va + done, run, access, iova);
    done += run;
  }
  return status;
}

MemoryStatus MkeyTable::read(std::uint32_t key, const MemoryContext& context, std::uint64_t va,
                             void* to, std::uint64_t length, MemoryAccess access) {
  MemoryStatus status = MemoryStatus::ok;
  if (const std::byte* direct = try_span(key, context, va, length, access, status)) {
    std::memcpy(to, direct, length);
    return MemoryStatus::ok;
  }
  if (status != MemoryStatus::ok) return status;
  return for_each_piece(key, context, va, length, access,
                        [&](std::uint64_t iova, std::uint64_t done, std::uint64_t run) {
                          return dma_.read(iova, static_cast<std::byte*>(to) + done, run);
                        });
}

MemoryStatus MkeyTable::write(std::uint32_t key, const MemoryContext& context, std::uint64_t va,
                              const void* from, std::uint64_t length, MemoryAccess access) {
  MemoryStatus status = MemoryStatus::ok;
  if (std::byte* direct = try_span(key, context, va, length, access, status)) {
    // The source may be registered memory itself, and overlap.
    std::memmove(direct, from, length);
    return MemoryStatus::ok;
  }
  if (status != MemoryStatus::ok) return status;
  return for_each_piece(key, context, va, length, access,
                        [&](std::uint64_t iova, std::uint64_t done, std::uint64_t run) {
                          return dma_.write(iova, static_cast<const std::byte*>(from) + done, run);
                        });
}

MemoryStatus MkeyTable::write_ordered(std::uint32_t key, const MemoryContext& context,
                                      std::uint64_t va, const void* from, std::uint64_t length,
                                      MemoryAccess access) {
  MemoryStatus status = MemoryStatus::ok;
  if (std::byte* direct = try_span(key, context, va, length, access, status)) {
    copy_ordered(direct, static_cast<const std::byte*>(from), length);
    return MemoryStatus::ok;
  }
  if (status != MemoryStatus::ok) return status;
  return for_each_piece(key, context, va, length, access,
                        [&](std::uint64_t iova, std::uint64_t done, std::uint64_t run) {
                          const auto* source = static_cast<const std::byte*>(from) + done;
                          return done + run < length ? dma_.write(iova, source, run)
                                                     : dma_.write_ordered(iova, source, run);
                        });
}

std::byte* MkeyTable::try_span(std::uint32_t key, const MemoryContext& context, std::uint64_t va,
                               std::uint64_t length, MemoryAccess access, MemoryStatus& status) {
  status = MemoryStatus::ok;
  if (length == 0) return nullptr;
  if (std::byte* known = quick_span(key, context, va, length, access)) return known;
  Target target;
  status = resolve(key, context, va, length, access, target);
  if (status != MemoryStatus::ok) return nullptr;
  std::uint64_t run = length;
  std::uint64_t iova = 0;
  if (target.indirect == nullptr) {
    iova = target.piece(0, run);
    if (target.pages != nullptr) learn_direct(*find(key >> 8));
  } else {
    status = locate(key, context, va, run, access, iova);
    if (status != MemoryStatus::ok) return nullptr;
  }
  return run == length ? dma_.try_span(iova, length, dma_access(access)) : nullptr;
}

MemoryStatus MkeyTable::invalidate(std::uint32_t key, const MemoryContext& context) {
  Mkey* mkey = find(key >> 8);
  if (mkey == nullptr || mkey->attributes.free || mkey->attributes.variant != (key & 0xff)) {
    return MemoryStatus::invalid_key;
  }
  const bool other_qp = mkey->attributes.qpn != kAnyQp && mkey->attributes.qpn != context.qpn;
  if (mkey->attributes.pd != context.pd || other_qp) return MemoryStatus::wrong_pd;
  if (!mkey->attributes.remote_invalidate) return MemoryStatus::not_permitted;
  dma_.revoke();
  mkey->attributes.free = true;
  mkey->direct = {};
  page_entries_ -= mkey->table_entries();
  mkey->pages.clear();
  mkey->klms.clear();
  return MemoryStatus::ok;
}

}  // namespace softhca
