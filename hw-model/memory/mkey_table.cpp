// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/memory/mkey_table.h"

#include <algorithm>
#include <iterator>
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

DmaAccess dma_access(MemoryAccess access) {
  return allows(MemoryAccess::local_read | MemoryAccess::remote_read, access) ? DmaAccess::read
                                                                              : DmaAccess::write;
}

}  // namespace

/// Where an access goes once it is allowed: an I/O virtual address, or an offset in a page table.
struct MkeyTable::Target {
  const PageTable* pages = nullptr;
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
  auto key = make_key(attributes, pages);
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

bool MkeyTable::create_at(std::uint32_t index, const MkeyAttributes& attributes,
                          std::span<const std::uint64_t> pages) {
  // The wanted one is commonly the last that was given back.
  const auto released = std::find(released_.rbegin(), released_.rend(), index);
  if (released == released_.rend()) return false;
  auto key = make_key(attributes, pages);
  if (key == nullptr) return false;
  released_.erase(std::next(released).base());
  place(index, std::move(key));
  return true;
}

std::unique_ptr<Mkey> MkeyTable::make_key(const MkeyAttributes& attributes,
                                          std::span<const std::uint64_t> pages) const {
  auto key = std::make_unique<Mkey>();
  key->attributes = attributes;
  if (attributes.mode == TranslationMode::mtt) {
    key->pages = PageTable(pages, attributes.log_page_size);
  }
  if (key->pages.entries() > max_page_entries_ - page_entries_) return nullptr;
  return key;
}

void MkeyTable::place(std::uint32_t index, std::unique_ptr<Mkey> key) {
  key->index = index;
  page_entries_ += key->pages.entries();
  keys_[index - first_index_] = std::move(key);
  ++size_;
}

bool MkeyTable::destroy(std::uint32_t index) {
  const Mkey* key = find(index);
  if (key == nullptr) return false;
  page_entries_ -= key->pages.entries();
  keys_[index - first_index_].reset();
  released_.push_back(index);
  --size_;
  return true;
}

void MkeyTable::clear() {
  keys_.clear();
  released_.clear();
  size_ = 0;
  page_entries_ = 0;
}

Mkey* MkeyTable::find(std::uint32_t index) {
  if (index < first_index_ || index - first_index_ >= keys_.size()) return nullptr;
  return keys_[index - first_index_].get();
}

const Mkey* MkeyTable::find(std::uint32_t index) const {
  if (index < first_index_ || index - first_index_ >= keys_.size()) return nullptr;
  return keys_[index - first_index_].get();
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
  if (attributes.free || attributes.variant != (key & 0xff)) return MemoryStatus::invalid_key;
  const bool other_qp = attributes.qpn != kAnyQp && attributes.qpn != context.qpn;
  if (attributes.pd != context.pd || other_qp) return MemoryStatus::wrong_pd;
  if (!allows(attributes.access, access)) return MemoryStatus::not_permitted;

  if (!attributes.length64) {
    const std::uint64_t offset = va - attributes.start;
    if (va < attributes.start || offset > attributes.length ||
        length > attributes.length - offset) {
      return MemoryStatus::out_of_bounds;
    }
  }
  if (attributes.mode == TranslationMode::physical) {
    target.address = va;
    return MemoryStatus::ok;
  }
  // The first page of the table holds `start`.
  const std::uint64_t page_mask = (1ULL << attributes.log_page_size) - 1;
  const std::uint64_t first_page = attributes.start & ~page_mask;
  const std::uint64_t offset = va - first_page;
  if (va < first_page || offset > mkey->pages.size() || length > mkey->pages.size() - offset) {
    return MemoryStatus::out_of_bounds;
  }
  target.pages = &mkey->pages;
  target.address = offset;
  return MemoryStatus::ok;
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
  for (std::uint64_t done = 0; done < length;) {
    std::uint64_t run = length - done;
    const std::uint64_t iova = target.piece(done, run);
    const DmaStatus moved = piece(iova, done, run);
    if (moved != DmaStatus::ok) return from_dma(moved);
    done += run;
  }
  return MemoryStatus::ok;
}

MemoryStatus MkeyTable::check(std::uint32_t key, const MemoryContext& context, std::uint64_t va,
                              std::uint64_t length, MemoryAccess access) {
  if (length == 0) return MemoryStatus::ok;
  Target target;
  return resolve(key, context, va, length, access, target);
}

MemoryStatus MkeyTable::read(std::uint32_t key, const MemoryContext& context, std::uint64_t va,
                             void* to, std::uint64_t length, MemoryAccess access) {
  return for_each_piece(key, context, va, length, access,
                        [&](std::uint64_t iova, std::uint64_t done, std::uint64_t run) {
                          return dma_.read(iova, static_cast<std::byte*>(to) + done, run);
                        });
}

MemoryStatus MkeyTable::write(std::uint32_t key, const MemoryContext& context, std::uint64_t va,
                              const void* from, std::uint64_t length, MemoryAccess access) {
  return for_each_piece(key, context, va, length, access,
                        [&](std::uint64_t iova, std::uint64_t done, std::uint64_t run) {
                          return dma_.write(iova, static_cast<const std::byte*>(from) + done, run);
                        });
}

MemoryStatus MkeyTable::write_ordered(std::uint32_t key, const MemoryContext& context,
                                      std::uint64_t va, const void* from, std::uint64_t length,
                                      MemoryAccess access) {
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
  Target target;
  status = resolve(key, context, va, length, access, target);
  if (status != MemoryStatus::ok) return nullptr;
  std::uint64_t run = length;
  const std::uint64_t iova = target.piece(0, run);
  return run == length ? dma_.try_span(iova, length, dma_access(access)) : nullptr;
}

MemoryStatus MkeyTable::invalidate(std::uint32_t key, const MemoryContext& context, bool remote) {
  Mkey* mkey = find(key >> 8);
  if (mkey == nullptr || mkey->attributes.free || mkey->attributes.variant != (key & 0xff)) {
    return MemoryStatus::invalid_key;
  }
  if (mkey->attributes.pd != context.pd) return MemoryStatus::wrong_pd;
  if (remote && !mkey->attributes.remote_invalidate) return MemoryStatus::not_permitted;
  mkey->attributes.free = true;
  return MemoryStatus::ok;
}

}  // namespace softhca
