// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Memory keys (PRM "MKey Commands").
#include <limits>
#include <optional>

#include "hw-model/firmware/handlers.h"
#include "hw-model/firmware/queue_memory.h"
#include "hw-model/memory/mkey_update.h"
#include "hw-model/prm/commands_mkey.h"
#include "hw-model/prm/mkey_context.h"

namespace softhca::firmware {
namespace {

using prm::CommandStatus;
using prm::CreateMkeyInput;
using prm::MkeyContext;

constexpr std::uint64_t kPasPerOctword = 2;  // a translation is 8 bytes, an octword 16
constexpr std::uint64_t kMttFlags = 0xfff;

void write_access(std::uint8_t* context, MemoryAccess access) {
  MkeyContext::lr::set(context, allows(access, MemoryAccess::local_read) ? 1 : 0);
  MkeyContext::lw::set(context, allows(access, MemoryAccess::local_write) ? 1 : 0);
  MkeyContext::rr::set(context, allows(access, MemoryAccess::remote_read) ? 1 : 0);
  MkeyContext::rw::set(context, allows(access, MemoryAccess::remote_write) ? 1 : 0);
  MkeyContext::a::set(context, allows(access, MemoryAccess::remote_atomic) ? 1 : 0);
}

/// Checks address range and mode.
Syndrome read_attributes(const Command& command, MkeyAttributes& attributes) {
  const std::uint8_t* context = CreateMkeyInput::memory_key_mkey_entry::at(command.in.data());
  if (!read_mkey_attributes(context, attributes)) return Syndrome::bad_access_mode;
  if (!attributes.length64 && attributes.length != 0 &&
      attributes.start > std::numeric_limits<std::uint64_t>::max() - (attributes.length - 1)) {
    return Syndrome::address_range_wraps;
  }
  // A user context may name the memory of other keys, but no addresses.
  const bool names_memory = !is_indirect(attributes.mode) && !attributes.free;
  if (command.uid != 0 && names_memory) return Syndrome::bad_access_mode;
  // A key that is still free is given its pages later.
  if (attributes.mode == TranslationMode::mtt && attributes.log_page_size < 12 &&
      !attributes.free) {
    return Syndrome::bad_mkey_page_size;
  }
  return Syndrome::none;
}

/// Units of 16 bytes of the list that the command has; none: fewer than it says.
std::optional<std::uint64_t> listed_units(const Command& command) {
  const auto list = tail(command.in, CreateMkeyInput::klm_pas_mtt_offset);
  const std::uint64_t units =
      CreateMkeyInput::translations_octword_actual_size::get(command.in.data());
  if (list.size() / kTranslationUnit < units) return std::nullopt;
  return units;
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

/// The list of an indirect key.
Syndrome read_pieces(const Command& command, const MkeyAttributes& attributes,
                     std::vector<KlmPiece>& pieces) {
  if (!is_indirect(attributes.mode) || attributes.free) return Syndrome::none;
  const auto units = listed_units(command);
  if (!units || *units > MkeyTable::kMaxKlmEntries) return Syndrome::translation_too_small;
  const auto list = tail(command.in, CreateMkeyInput::klm_pas_mtt_offset);
  for (std::uint64_t at = 0; at < *units * kTranslationUnit; at += kTranslationUnit) {
    pieces.push_back(read_piece(list.data() + at));
  }
  return Syndrome::none;
}

/// A record makes a key valid that is not: only where all else that CREATE_MKEY checks was checked.
bool may_have_record(const Command& command, const MkeyAttributes& attributes,
                     std::uint64_t address) {
  return command.uid == 0 && attributes.mode == TranslationMode::mtt && !attributes.free &&
         MkeyStates::is_record(address);
}

}  // namespace

CommandResult create_mkey(FirmwareState& state, const Command& command) {
  if (state.pages.exhausted())
    return failure(CommandStatus::no_resources, Syndrome::pages_withheld);
  if (CreateMkeyInput::mkey_umem_valid::get(command.in.data()) != 0) {
    return failure(CommandStatus::bad_parameter, Syndrome::umem_not_supported);
  }
  MkeyAttributes attributes;
  if (const Syndrome bad = read_attributes(command, attributes); bad != Syndrome::none) {
    return failure(CommandStatus::bad_parameter, bad);
  }
  MkeyRecord record;
  record.pd = state.pds.ref(attributes.pd);
  // A free key gets its protection domain when it is made valid.
  if (!record.pd && !attributes.free)
    return failure(CommandStatus::bad_resource, Syndrome::no_such_pd);
  std::vector<std::uint64_t> pages;
  std::vector<KlmPiece> pieces;
  Syndrome bad = read_pages(command, attributes, pages);
  if (bad == Syndrome::none) bad = read_pieces(command, attributes, pieces);
  if (bad != Syndrome::none) return failure(CommandStatus::bad_parameter, bad);

  const std::uint64_t record_address = CreateMkeyInput::state_record::get(command.in.data());
  if (record_address != 0 && !may_have_record(command, attributes, record_address)) {
    return failure(CommandStatus::bad_parameter, Syndrome::bad_access_mode);
  }

  const bool indirect = is_indirect(attributes.mode);
  const auto wanted =
      static_cast<std::uint32_t>(prm::CreateMkeyInput::input_mkey_index::get(command.in.data()));
  std::optional<std::uint32_t> index;
  if (wanted == 0) {
    index = indirect ? state.mkeys.create_indirect(attributes, pieces)
                     : state.mkeys.create(attributes, pages);
  } else if (indirect ? state.mkeys.create_indirect_at(wanted, attributes, pieces)
                      : state.mkeys.create_at(wanted, attributes, pages)) {
    index = wanted;
  } else {
    return failure(CommandStatus::bad_resource, Syndrome::no_such_mkey);
  }
  if (!index) return failure(CommandStatus::no_resources, Syndrome::out_of_mkeys);
  state.mkey_records[*index] = std::move(record);
  if (record_address != 0) state.mkey_states.add(*index, record_address);
  prm::CreateMkeyOutput::mkey_index::set(command.out.data(), *index);
  return {};
}

CommandResult destroy_mkey(FirmwareState& state, const Command& command) {
  const auto index =
      static_cast<std::uint32_t>(prm::DestroyMkeyInput::mkey_index::get(command.in.data()));
  if (!state.mkeys.destroy(index))
    return failure(CommandStatus::bad_resource, Syndrome::no_such_mkey);
  state.mkey_records.erase(index);
  state.mkey_states.remove(index);
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
  // Every mode that the device has is a low one.
  MkeyContext::access_mode_1_0::set(context, static_cast<unsigned>(attributes.mode));
  MkeyContext::umr_en::set(context, attributes.umr_enabled ? 1 : 0);
  MkeyContext::qpn::set(context, attributes.qpn);
  MkeyContext::mkey_7_0::set(context, attributes.variant);
  MkeyContext::length64::set(context, attributes.length64 ? 1 : 0);
  MkeyContext::en_rinval::set(context, attributes.remote_invalidate ? 1 : 0);
  MkeyContext::pd::set(context, attributes.pd);
  MkeyContext::start_addr::set(context, attributes.start);
  MkeyContext::len::set(context, attributes.length);
  MkeyContext::translations_octword_size::set(context, attributes.capacity);
  if (attributes.mode == TranslationMode::mtt || attributes.mode == TranslationMode::ksm)
    MkeyContext::log_page_size::set(context, attributes.log_page_size);
  return {};
}

}  // namespace softhca::firmware
