// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/memory/mkey_update.h"

#include <algorithm>
#include <limits>

#include "hw-model/memory/mkey_table.h"
#include "hw-model/prm/mkey_context.h"
#include "hw-model/prm/wqe.h"

namespace softhca {
namespace {

using prm::MkeyContext;
using prm::UmrMask;

constexpr std::size_t kPageEntry = prm::MttEntry::size;
constexpr std::size_t kPieceEntry = prm::KlmEntry::size;
constexpr std::uint8_t kSmallestLogPage = 12;
/// Lists are written in pieces of 64 bytes, so a table has room for whole ones.
constexpr std::uint64_t kTableUnits = 4;
/// Fields whose change is carried out; the ordering hints need nothing done, since the device keeps
/// the strictest order.
constexpr std::uint64_t kAccessFields = UmrMask::local_read | UmrMask::local_write |
                                        UmrMask::remote_read | UmrMask::remote_write |
                                        UmrMask::atomic;
constexpr std::uint64_t kFields =
    kAccessFields | UmrMask::length | UmrMask::page_size | UmrMask::start_address | UmrMask::pd |
    UmrMask::enable_remote_invalidate | UmrMask::key | UmrMask::qpn | UmrMask::small_fence |
    UmrMask::relaxed_ordering_write | UmrMask::relaxed_ordering_read | UmrMask::free;

bool has(const MkeyUpdate& update, std::uint64_t field) {
  return (update.fields & field) != 0;
}

bool range_wraps(const MkeyAttributes& attributes) {
  return !attributes.length64 && attributes.length != 0 &&
         attributes.start > std::numeric_limits<std::uint64_t>::max() - (attributes.length - 1);
}

MemoryAccess changed_access(MemoryAccess now, const MkeyUpdate& update) {
  constexpr struct {
    std::uint64_t field;
    MemoryAccess right;
  } kRights[] = {{UmrMask::local_read, MemoryAccess::local_read},
                 {UmrMask::local_write, MemoryAccess::local_write},
                 {UmrMask::remote_read, MemoryAccess::remote_read},
                 {UmrMask::remote_write, MemoryAccess::remote_write},
                 {UmrMask::atomic, MemoryAccess::remote_atomic}};
  MemoryAccess access = MemoryAccess::none;
  for (const auto& [field, right] : kRights) {
    const MemoryAccess from = has(update, field) ? update.to.access : now;
    if (allows(from, right)) access = access | right;
  }
  return access;
}

/// The attributes after the update.
MkeyAttributes changed(const MkeyAttributes& now, const MkeyUpdate& update) {
  const MkeyAttributes& to = update.to;
  MkeyAttributes next = now;
  if (has(update, UmrMask::length)) {
    next.length = to.length;
    next.length64 = to.length64;
  }
  if (has(update, UmrMask::page_size)) next.log_page_size = to.log_page_size;
  if (has(update, UmrMask::start_address)) next.start = to.start;
  if (has(update, UmrMask::pd)) next.pd = to.pd;
  if (has(update, UmrMask::enable_remote_invalidate)) next.remote_invalidate = to.remote_invalidate;
  if (has(update, UmrMask::key)) next.variant = to.variant;
  if (has(update, UmrMask::qpn)) next.qpn = to.qpn;
  if (has(update, UmrMask::free)) next.free = to.free;
  next.access = changed_access(now.access, update);
  return next;
}

}  // namespace

bool read_mkey_attributes(const std::uint8_t* context, MkeyAttributes& attributes) {
  attributes.variant = static_cast<std::uint8_t>(MkeyContext::mkey_7_0::get(context));
  attributes.pd = static_cast<std::uint32_t>(MkeyContext::pd::get(context));
  attributes.qpn = static_cast<std::uint32_t>(MkeyContext::qpn::get(context));
  MemoryAccess access = MemoryAccess::none;
  if (MkeyContext::lr::get(context) != 0) access = access | MemoryAccess::local_read;
  if (MkeyContext::lw::get(context) != 0) access = access | MemoryAccess::local_write;
  if (MkeyContext::rr::get(context) != 0) access = access | MemoryAccess::remote_read;
  if (MkeyContext::rw::get(context) != 0) access = access | MemoryAccess::remote_write;
  if (MkeyContext::a::get(context) != 0) access = access | MemoryAccess::remote_atomic;
  attributes.access = access;
  attributes.free = MkeyContext::free::get(context) != 0;
  attributes.remote_invalidate = MkeyContext::en_rinval::get(context) != 0;
  attributes.length64 = MkeyContext::length64::get(context) != 0;
  attributes.start = MkeyContext::start_addr::get(context);
  attributes.length = MkeyContext::len::get(context);
  attributes.log_page_size = static_cast<std::uint8_t>(MkeyContext::log_page_size::get(context));
  attributes.umr_enabled = MkeyContext::umr_en::get(context) != 0;
  attributes.capacity =
      static_cast<std::uint32_t>(MkeyContext::translations_octword_size::get(context));
  const std::uint64_t mode =
      MkeyContext::access_mode_4_2::get(context) << 2 | MkeyContext::access_mode_1_0::get(context);
  switch (static_cast<prm::MkeyAccessMode>(mode)) {
    case prm::MkeyAccessMode::pa:
      attributes.mode = TranslationMode::physical;
      return true;
    case prm::MkeyAccessMode::mtt:
      attributes.mode = TranslationMode::mtt;
      return true;
    case prm::MkeyAccessMode::klms:
      attributes.mode = TranslationMode::klm;
      return true;
    case prm::MkeyAccessMode::ksm:
      attributes.mode = TranslationMode::ksm;
      return true;
    default:
      return false;
  }
}

std::uint64_t read_page(const std::uint8_t* entry) {
  constexpr std::uint64_t kFlags = 0xfff;
  if (prm::MttEntry::rd_en::get(entry) == 0 && prm::MttEntry::wr_en::get(entry) == 0) {
    return kAbsentPage;
  }
  return prm::MttEntry::ptag::get(entry) & ~kFlags;
}

KlmPiece read_piece(const std::uint8_t* entry) {
  return {prm::KlmEntry::address::get(entry),
          static_cast<std::uint32_t>(prm::KlmEntry::key::get(entry)),
          static_cast<std::uint32_t>(prm::KlmEntry::byte_count::get(entry))};
}

MemoryStatus MkeyTable::check_list(const Mkey& mkey, const MkeyUpdate& update) const {
  const MkeyAttributes& attributes = mkey.attributes;
  const bool indirect = is_indirect(attributes.mode);
  const bool repaged = has(update, UmrMask::page_size) && !indirect &&
                       update.to.log_page_size != attributes.log_page_size;
  if (update.list.empty() && !repaged) return MemoryStatus::ok;
  if (attributes.mode == TranslationMode::physical) return MemoryStatus::not_permitted;
  const std::uint64_t units = update.list.size() / kTranslationUnit;
  const std::uint64_t room =
      (std::uint64_t{attributes.capacity} + kTableUnits - 1) / kTableUnits * kTableUnits;
  if (units != 0 && (update.list_offset > room || units > room - update.list_offset)) {
    return MemoryStatus::out_of_bounds;
  }
  // A run of pages may become a table.
  const std::size_t entry = indirect ? kPieceEntry : kPageEntry;
  const std::uint64_t end =
      units == 0 ? 0 : (update.list_offset + units) * kTranslationUnit / entry;
  const std::uint64_t now = indirect ? mkey.klms.entries() : mkey.pages.count();
  const std::uint64_t entries = std::max(end, now);
  if (entries > (indirect ? kMaxKlmEntries : kMaxUmrPages)) return MemoryStatus::out_of_bounds;
  const std::size_t others = page_entries_ - mkey.table_entries();
  const std::uint64_t weight = indirect ? Mkey::kPieceWeight : 1;
  return entries * weight > max_page_entries_ - others ? MemoryStatus::out_of_bounds
                                                       : MemoryStatus::ok;
}

MemoryStatus MkeyTable::check_update(const Mkey& mkey, std::uint32_t key,
                                     const MemoryContext& context, const MkeyUpdate& update) const {
  const MkeyAttributes& now = mkey.attributes;
  if (!now.umr_enabled || (update.fields & ~kFields) != 0) return MemoryStatus::not_permitted;
  if (!context.any_pd) {
    if (now.pd != context.pd) return MemoryStatus::wrong_pd;
    if (has(update, UmrMask::pd) && update.to.pd != context.pd) return MemoryStatus::wrong_pd;
    const bool other_qp = now.qpn != kAnyQp && now.qpn != context.qpn;
    if (other_qp && (!now.free || update.check_qpn)) return MemoryStatus::wrong_pd;
    if (has(update, UmrMask::qpn) && update.to.qpn != kAnyQp && update.to.qpn != context.qpn) {
      return MemoryStatus::wrong_pd;
    }
    // A list of pages names memory that no key vouches for.
    if (!is_indirect(now.mode) && !context.fast_registration) return MemoryStatus::not_permitted;
  }
  if (update.expect == MkeyUpdate::Expect::free && !now.free) return MemoryStatus::not_permitted;
  if (update.expect == MkeyUpdate::Expect::valid && now.free) return MemoryStatus::not_permitted;
  if (!now.free && !has(update, UmrMask::key) && now.variant != (key & 0xff)) {
    return MemoryStatus::invalid_key;
  }
  const MkeyAttributes next = changed(now, update);
  if (next.free) return MemoryStatus::ok;
  if (range_wraps(next)) return MemoryStatus::out_of_bounds;
  if (next.mode == TranslationMode::mtt && next.log_page_size < kSmallestLogPage) {
    return MemoryStatus::not_permitted;
  }
  return MemoryStatus::ok;
}

void MkeyTable::apply_list(Mkey& mkey, const MkeyUpdate& update) {
  if (is_indirect(mkey.attributes.mode)) {
    new_pieces_.clear();
    for (std::size_t at = 0; at + kPieceEntry <= update.list.size(); at += kPieceEntry) {
      new_pieces_.push_back(read_piece(update.list.data() + at));
    }
    mkey.klms.replace(update.list_offset, new_pieces_);
    return;
  }
  new_pages_.clear();
  for (std::size_t at = 0; at + kPageEntry <= update.list.size(); at += kPageEntry) {
    new_pages_.push_back(read_page(update.list.data() + at));
  }
  mkey.pages.replace(update.list_offset * kTranslationUnit / kPageEntry, new_pages_);
}

MemoryStatus MkeyTable::update(std::uint32_t key, const MemoryContext& context,
                               const MkeyUpdate& update) {
  Mkey* mkey = find(key >> 8);
  update_cost_ = update.list.size();
  if (mkey == nullptr) return MemoryStatus::invalid_key;
  MemoryStatus status = check_update(*mkey, key, context, update);
  if (status == MemoryStatus::ok) status = check_list(*mkey, update);
  if (status != MemoryStatus::ok) return status;
  const MkeyAttributes next = changed(mkey->attributes, update);
  if (pd_use_ != nullptr && next.pd != mkey->attributes.pd &&
      !pd_use_->move_key(mkey->index, next.pd)) {
    return MemoryStatus::wrong_pd;
  }
  dma_.revoke();
  mkey->direct = {};
  mkey->attributes = next;
  page_entries_ -= mkey->table_entries();
  if (has(update, UmrMask::free) && next.free) {
    mkey->pages.clear();
    mkey->klms.clear();
  }
  update_cost_ += mkey->pages.count() * kPageEntry + mkey->klms.entries() * kPieceEntry;
  mkey->pages.set_log_page_size(next.log_page_size);
  if (!update.list.empty()) apply_list(*mkey, update);
  page_entries_ += mkey->table_entries();
  return MemoryStatus::ok;
}

}  // namespace softhca
