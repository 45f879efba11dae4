// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>

#include "hw-model/firmware/command.h"
#include "hw-model/firmware/firmware_state.h"

namespace softhca {

/// uid of objects shared by all user contexts.
inline constexpr std::uint16_t kSharedResourceUid = 0xffff;

using CommandHandler = CommandResult (*)(FirmwareState& state, const Command& command);

/// One command of the device.
struct CommandRow {
  prm::CommandOpcode opcode;
  CommandHandler handler;
  HcaPhase phase;            ///< Least phase in which it is allowed.
  std::uint32_t input_size;  ///< Least lengths, in bytes.
  std::uint32_t output_size;
  bool counts_pages;  ///< Changes the pages needed or held.
};

/// Null: the device does not have the command.
const CommandRow* find_command(std::uint16_t opcode);

}  // namespace softhca
