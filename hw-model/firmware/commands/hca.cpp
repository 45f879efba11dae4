// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Start and stop of the HCA (PRM "Initialization and General Commands").
#include <algorithm>

#include "hw-model/firmware/handlers.h"
#include "hw-model/prm/commands_hca.h"

namespace softhca::firmware {
namespace {

using prm::CommandStatus;

/// ISSI 0 and 1 are offered.
constexpr std::uint32_t kSupportedIssi = 0x3;
constexpr std::uint16_t kTeardownProfiles = 3;  // graceful, force, prepare fast

}  // namespace

CommandResult enable_hca(FirmwareState& state, const Command& command) {
  if (prm::EnableHcaInput::function_id::get(command.in.data()) != 0) {
    return failure(CommandStatus::bad_parameter, Syndrome::other_function);
  }
  if (state.phase == HcaPhase::initialized) {
    return failure(CommandStatus::bad_system_state, Syndrome::hca_already_initialized);
  }
  state.phase = HcaPhase::enabled;
  return {};
}

CommandResult disable_hca(FirmwareState& state, const Command& command) {
  if (prm::DisableHcaInput::function_id::get(command.in.data()) != 0) {
    return failure(CommandStatus::bad_parameter, Syndrome::other_function);
  }
  if (state.phase == HcaPhase::initialized) {
    return failure(CommandStatus::bad_system_state, Syndrome::hca_already_initialized);
  }
  // The driver frees what it has not taken back; chosen capabilities and ISSI do not outlive this
  // either.
  state.reset();
  return {};
}

CommandResult init_hca(FirmwareState& state, const Command&) {
  if (state.phase == HcaPhase::initialized) {
    return failure(CommandStatus::bad_system_state, Syndrome::hca_already_initialized);
  }
  if (!state.pages.booted())
    return failure(CommandStatus::bad_system_state, Syndrome::boot_pages_missing);
  if (!state.pages.initialized())
    return failure(CommandStatus::bad_system_state, Syndrome::init_pages_missing);
  state.phase = HcaPhase::initialized;
  return {};
}

CommandResult teardown_hca(FirmwareState& state, const Command& command) {
  if (prm::TeardownHcaInput::profile::get(command.in.data()) >= kTeardownProfiles) {
    return failure(CommandStatus::bad_parameter, Syndrome::bad_profile);
  }
  state.destroy_objects();
  state.phase = HcaPhase::enabled;
  return {};
}

CommandResult query_issi(FirmwareState& state, const Command& command) {
  prm::QueryIssiOutput::current_issi::set(command.out.data(), state.issi);
  prm::QueryIssiOutput::supported_issi_dw0::set(command.out.data(), kSupportedIssi);
  return {};
}

CommandResult set_issi(FirmwareState& state, const Command& command) {
  const std::uint64_t issi = prm::SetIssiInput::current_issi::get(command.in.data());
  if (issi > 31 || (kSupportedIssi >> issi & 1) == 0) {
    return failure(CommandStatus::bad_parameter, Syndrome::bad_issi);
  }
  if (state.phase == HcaPhase::initialized) {
    return failure(CommandStatus::bad_system_state, Syndrome::hca_already_initialized);
  }
  state.issi = static_cast<std::uint16_t>(issi);
  return {};
}

CommandResult set_driver_version(FirmwareState& state, const Command& command) {
  const auto* text = reinterpret_cast<const char*>(
      prm::SetDriverVersionInput::driver_version::at(command.in.data()));
  const char* end = std::find(text, text + prm::SetDriverVersionInput::driver_version::size, '\0');
  state.driver_version.clear();
  // It is shown to people: nothing but printable characters gets there.
  std::copy_if(text, end, std::back_inserter(state.driver_version),
               [](char c) { return c >= ' ' && c <= '~'; });
  return {};
}

CommandResult nop(FirmwareState&, const Command&) {
  return {};
}

}  // namespace softhca::firmware
