// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace softhca {

/// XOR of all bytes. Command interface signatures are chosen so that it is 0xff over the signed
/// range.
constexpr std::uint8_t xor8(std::span<const std::uint8_t> bytes) {
  std::uint8_t sum = 0;
  for (const std::uint8_t byte : bytes) sum ^= byte;
  return sum;
}

/// Sign `entry` (64 bytes, ownership byte already final).
void sign_command_entry(std::span<std::uint8_t> entry);
/// Both signatures of a mailbox block (CommandMailbox::size bytes).
void sign_command_mailbox(std::span<std::uint8_t> block);
bool command_entry_signed(std::span<const std::uint8_t> entry);
bool command_mailbox_signed(std::span<const std::uint8_t> block);

}  // namespace softhca
