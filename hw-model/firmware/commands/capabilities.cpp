// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What the device is and can do.
#include "hw-model/firmware/capabilities.h"

#include <algorithm>
#include <cstring>

#include "hw-model/firmware/handlers.h"
#include "hw-model/prm/commands_hca.h"

namespace softhca::firmware {
namespace {

using prm::CommandStatus;

constexpr std::uint32_t kOui = 0x0002c9;
constexpr std::uint16_t kPciVendor = 0x15b3;

}  // namespace

CommandResult query_hca_cap(FirmwareState& state, const Command& command) {
  const std::uint8_t* in = command.in.data();
  if (prm::QueryHcaCapInput::other_function::get(in) != 0) {
    return failure(CommandStatus::bad_parameter, Syndrome::other_function);
  }
  const bool current = (command.op_mod & 1) != 0;
  const auto* area =
      state.capabilities.query(static_cast<prm::HcaCapType>(command.op_mod >> 1), current);
  if (area == nullptr) return failure(CommandStatus::bad_parameter, Syndrome::bad_cap_type);
  // Drivers may ask for less than the whole area.
  const std::size_t offset = prm::QueryHcaCapOutput::capability::offset;
  std::memcpy(command.out.data() + offset, area->data(),
              std::min(area->size(), command.out.size() - offset));
  return {};
}

CommandResult set_hca_cap(FirmwareState& state, const Command& command) {
  if (state.phase == HcaPhase::initialized) {
    return failure(CommandStatus::bad_system_state, Syndrome::hca_already_initialized);
  }
  if (prm::SetHcaCapInput::other_function::get(command.in.data()) != 0) {
    return failure(CommandStatus::bad_parameter, Syndrome::other_function);
  }
  const auto wanted = command.in.subspan(prm::SetHcaCapInput::capability::offset);
  const Syndrome syndrome =
      state.capabilities.set(static_cast<prm::HcaCapType>(command.op_mod >> 1), wanted);
  if (syndrome != Syndrome::none) return failure(CommandStatus::bad_parameter, syndrome);
  state.apply_capabilities();
  return {};
}

CommandResult query_adapter(FirmwareState& state, const Command& command) {
  std::uint8_t* block = prm::QueryAdapterOutput::query_adapter_struct::at(command.out.data());
  prm::AdapterParameters::ieee_vendor_id::set(block, kOui);
  prm::AdapterParameters::vsd_vendor_id::set(block, kPciVendor);
  const std::string& psid = state.config.board_id;
  std::copy_n(psid.begin(), std::min(psid.size(), prm::AdapterParameters::vsd_contd_psid::size),
              prm::AdapterParameters::vsd_contd_psid::at(block));
  return {};
}

CommandResult query_special_contexts(FirmwareState&, const Command& command) {
  prm::QuerySpecialContextsOutput::resd_lkey::set(command.out.data(), kReservedLkey);
  return {};
}

}  // namespace softhca::firmware
