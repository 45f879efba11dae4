// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "hw-model/prm/opcodes.h"

namespace softhca {

/// One firmware command as its handler sees it. `in` is the whole input (at least the length that
/// the command table demands), `out` the whole output area, zeroed, as long as the driver asked
/// for; both big-endian.
struct Command {
  std::uint16_t opcode = 0;
  std::uint16_t op_mod = 0;
  std::uint16_t uid = 0;  ///< User context of the caller; 0 is the kernel.
  std::span<const std::uint8_t> in;
  std::span<std::uint8_t> out;
};

/// What a handler answers; stored into CommandOutput by the interpreter. The syndrome tells
/// failures of one status apart and is unique in the firmware (see syndromes.h).
struct CommandResult {
  prm::CommandStatus status = prm::CommandStatus::ok;
  std::uint32_t syndrome = 0;

  bool ok() const { return status == prm::CommandStatus::ok; }
};

/// Executes commands that the command queue delivers.
class CommandExecutor {
 public:
  virtual ~CommandExecutor() = default;
  /// Runs one command and writes its whole output, status included. `in` has at least
  /// CommandInput::size bytes, `out` at least CommandOutput::size bytes and is zeroed.
  virtual void execute(std::span<const std::uint8_t> in, std::span<std::uint8_t> out) = 0;
  /// Called before execute(): whether the completion of this command is to be told by an event. A
  /// command that creates the event queue for commands is itself still polled for.
  virtual bool completion_by_event() const = 0;
  /// The entries of `vector` (a bit per slot) are back in the driver's hands.
  virtual void commands_completed(std::uint32_t vector) = 0;
  /// The command queue itself cannot be reached; nothing more will be executed.
  virtual void command_queue_lost() = 0;
};

}  // namespace softhca
