// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hw-model/prm/command_queue.h"
#include "hw-model/prm/opcodes.h"

namespace softhca::shim {

/// What became of a firmware command.
struct CommandResult {
  int error = 0;  ///< 0, or what the kernel's mlx5_core returns for it (ETIMEDOUT, ENODEV if it
                  ///< never ended).
  std::uint8_t status = 0;  ///< prm::CommandStatus.
  std::uint32_t syndrome = 0;

  explicit operator bool() const { return error == 0; }
};

/// Executes firmware commands, one at a time.
class CommandInterface {
 public:
  virtual ~CommandInterface() = default;
  /// `in` begins with prm::CommandInput, `out` is filled entirely (zeroes where the device wrote
  /// nothing).
  virtual CommandResult execute(std::span<const std::uint8_t> in, std::span<std::uint8_t> out) = 0;

  /// What is sent to the device from now on has a command behind it, for which the caller will
  /// wait.
  virtual void announce() {}
};

/// A command input under construction: zeroes, then the head.
class CommandInputBuffer {
 public:
  CommandInputBuffer(prm::CommandOpcode opcode, std::size_t size, std::uint16_t op_mod = 0)
      : bytes_(size) {
    prm::CommandInput::opcode::set(bytes_.data(), static_cast<std::uint16_t>(opcode));
    prm::CommandInput::op_mod::set(bytes_.data(), op_mod);
  }
  std::uint8_t* data() { return bytes_.data(); }
  std::uint8_t* at(std::size_t offset) { return bytes_.data() + offset; }
  operator std::span<const std::uint8_t>() const { return bytes_; }

 private:
  std::vector<std::uint8_t> bytes_;
};

/// Executes a command of which only the head of the output matters.
inline CommandResult execute_plain(CommandInterface& commands, const CommandInputBuffer& in) {
  std::uint8_t out[16] = {};
  return commands.execute(in, out);
}

/// Errno for a command status, as mlx5_core translates it (cmd.c, cmd_status_to_err).
int command_status_error(std::uint8_t status);

}  // namespace softhca::shim
