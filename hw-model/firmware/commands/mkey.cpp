// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Memory keys (PRM "MKey Commands").
#include <limits>
#include <optional>

#include "hw-model/firmware/handlers.h"
#include "hw-model/firmware/queue_memory.h"
#include "hw-model/prm/commands_mkey.h"
#include "hw-model/prm/mkey_context.h"

namespace softhca::firmware {
namespace {

using prm::CommandStatus;
using prm::CreateMkeyInput;
using prm::MkeyContext;

constexpr std::uint64_t kPasPerOctword = 2;  // a translation is 8 bytes, an octword 16
constexpr std::uint64_t kMttFlags = 0xfff;

MemoryAccess read_access(const std::uint8_t* context) {
  MemoryAccess access = MemoryAccess::none;
  if (MkeyContext::lr::get(context) != 0) access = access | MemoryAccess::local_read;
  if (MkeyContext::lw::get(context) != 0) access = access | MemoryAccess::local_write;
  if (MkeyContext::rr::get(context) != 0) access = access | MemoryAccess::remote_read;
  if (MkeyContext::rw::get(context) != 0) access = access | MemoryAccess::remote_write;
  if (MkeyContext::a::get(context) != 0) access = access | MemoryAccess::remote_atomic;
  return access;
}

void write_access(std::uint8_t* context, MemoryAccess access) {
  MkeyContext::lr::set(context, allows(access, MemoryAccess::local_read) ? 1 : 0);
  MkeyContext::lw::set(context, allows(access, MemoryAccess::local_write) ? 1 : 0);
  MkeyContext::rr::set(context, allows(access, MemoryAccess::remote_read) ? 1 : 0);
  MkeyContext::rw::set(context, allows(access, MemoryAccess::remote_write) ? 1 : 0);
  MkeyContext::a::set(context, allows(access, MemoryAccess::remote_atomic) ? 1 : 0);
}

/// Checks address range and mode.
Syndrome read_attributes(const std::uint8_t* context, MkeyAttributes& attributes) {
  attributes.variant = static_cast<std::uint8_t>(MkeyContext::mkey_7_0::get(context));
  attributes.pd = static_cast<std::uint32_t>(MkeyContext::pd::get(context));
  attributes.qpn = static_cast<std::uint32_t>(MkeyContext::qpn::get(context));
  attributes.access = read_access(context);
  attributes.free = MkeyContext::free::get(context) != 0;
  attributes.remote_invalidate = MkeyContext::en_rinval::get(context) != 0;
  attributes.length64 = MkeyContext::length64::get(context) != 0;
  attributes.start = MkeyContext::start_addr::get(context);
  attributes.length = MkeyContext::len::get(context);
  if (!attributes.length64 && attributes.length != 0 &&
      attributes.start > std::numeric_limits<std::uint64_t>::max() - (attributes.length - 1)) {
    return Syndrome::address_range_wraps;
  }
  const std::uint64_t mode =
      MkeyContext::access_mode_4_2::get(context) << 2 | MkeyContext::access_mode_1_0::get(context);
  switch (static_cast<prm::MkeyAccessMode>(mode)) {
    case prm::MkeyAccessMode::pa:
      attributes.mode = TranslationMode::physical;
      return Syndrome::none;
    case prm::MkeyAccessMode::mtt:
      attributes.mode = TranslationMode::mtt;
      break;
    default:
      return Syndrome::bad_access_mode;
  }
  attributes.log_page_size = static_cast<std::uint8_t>(MkeyContext::log_page_size::get(context));
  // A key that is still free is given its pages later.
  if (attributes.log_page_size < 12 && !attributes.free) return Syndrome::bad_mkey_page_size;
  return Syndrome::none;
}

/// The pages of an MTT key, as many as its range needs.
Syndrome read_pages(const Command& command, const MkeyAttributes& attributes,
                    std::vector<std::uint64_t>& pages) {
  if (attributes.mode != TranslationMode::mtt || attributes.free) return Syndrome::none;
  if (attributes.length64) return Syndrome::bad_access_mode;
  const std::uint64_t page_size = 1ULL << attributes.log_page_size;
  const std::uint64_t first = attributes.start % page_size;
  if (attributes.length > std::numeric_limits<std::uint64_t>::max() - first - page_size) {
    return Syndrome::address_range_wraps;
  }
  const std::uint64_t count = (first + attributes.length + page_size - 1) / page_size;
  const auto list = tail(command.in, CreateMkeyInput::klm_pas_mtt_offset);
  const std::uint64_t listed =
      CreateMkeyInput::translations_octword_actual_size::get(command.in.data()) * kPasPerOctword;
  if (listed < count || list.size() / 8 < count) return Syndrome::translation_too_small;
  pages = read_pas(list, count);
  for (std::uint64_t& page : pages) page &= ~kMttFlags;
  return Syndrome::none;
}

}  // namespace

CommandResult create_mkey(FirmwareState& state, const Command& command) {
  if (state.pages.exhausted())
    return failure(CommandStatus::no_resources, Syndrome::pages_withheld);
  if (CreateMkeyInput::mkey_umem_valid::get(command.in.data()) != 0) {
    return failure(CommandStatus::bad_parameter, Syndrome::umem_not_supported);
  }
  const std::uint8_t* context = CreateMkeyInput::memory_key_mkey_entry::at(command.in.data());
  MkeyAttributes attributes;
  if (const Syndrome bad = read_attributes(context, attributes); bad != Syndrome::none) {
    return failure(CommandStatus::bad_parameter, bad);
  }
  MkeyRecord record;
  record.translation_octwords =
      static_cast<std::uint32_t>(MkeyContext::translations_octword_size::get(context));
  record.pd = state.pds.ref(attributes.pd);
  // A free key gets its protection domain when it is made valid.
  if (!record.pd && !attributes.free)
    return failure(CommandStatus::bad_resource, Syndrome::no_such_pd);
  std::vector<std::uint64_t> pages;
  if (const Syndrome bad = read_pages(command, attributes, pages); bad != Syndrome::none) {
    return failure(CommandStatus::bad_parameter, bad);
  }
  const auto wanted =
      static_cast<std::uint32_t>(prm::CreateMkeyInput::input_mkey_index::get(command.in.data()));
  std::optional<std::uint32_t> index;
  if (wanted == 0) {
    index = state.mkeys.create(attributes, pages);
  } else if (state.mkeys.create_at(wanted, attributes, pages)) {
    index = wanted;
  } else {
    return failure(CommandStatus::bad_resource, Syndrome::no_such_mkey);
  }
  if (!index) return failure(CommandStatus::no_resources, Syndrome::out_of_mkeys);
  state.mkey_records[*index] = std::move(record);
  prm::CreateMkeyOutput::mkey_index::set(command.out.data(), *index);
  return {};
}

CommandResult destroy_mkey(FirmwareState& state, const Command& command) {
  const auto index =
      static_cast<std::uint32_t>(prm::DestroyMkeyInput::mkey_index::get(command.in.data()));
  if (!state.mkeys.destroy(index))
    return failure(CommandStatus::bad_resource, Syndrome::no_such_mkey);
  state.mkey_records.erase(index);
  return {};
}

CommandResult query_mkey(FirmwareState& state, const Command& command) {
  const auto index =
      static_cast<std::uint32_t>(prm::QueryMkeyInput::mkey_index::get(command.in.data()));
  const Mkey* mkey = state.mkeys.find(index);
  if (mkey == nullptr) return failure(CommandStatus::bad_resource, Syndrome::no_such_mkey);
  const MkeyAttributes& attributes = mkey->attributes;
  std::uint8_t* context = prm::QueryMkeyOutput::memory_key_mkey_entry::at(command.out.data());
  MkeyContext::free::set(context, attributes.free ? 1 : 0);
  write_access(context, attributes.access);
  MkeyContext::access_mode_1_0::set(context, static_cast<unsigned>(attributes.mode));
  MkeyContext::qpn::set(context, attributes.qpn);
  MkeyContext::mkey_7_0::set(context, attributes.variant);
  MkeyContext::length64::set(context, attributes.length64 ? 1 : 0);
  MkeyContext::en_rinval::set(context, attributes.remote_invalidate ? 1 : 0);
  MkeyContext::pd::set(context, attributes.pd);
  MkeyContext::start_addr::set(context, attributes.start);
  MkeyContext::len::set(context, attributes.length);
  MkeyContext::translations_octword_size::set(context,
                                              state.mkey_records[index].translation_octwords);
  if (attributes.mode == TranslationMode::mtt)
    MkeyContext::log_page_size::set(context, attributes.log_page_size);
  return {};
}

}  // namespace softhca::firmware
