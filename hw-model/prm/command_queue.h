// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include "hw-model/prm/field.h"

namespace softhca::prm {

// Command interface (PRM "Command Interface"): the queue of command entries and the mailbox blocks.

/// CommandQueueEntry::type of a PCI command.
inline constexpr std::uint8_t kCommandTransportPci = 7;
/// Bytes of input and of output that travel inside the entry itself.
inline constexpr std::size_t kCommandInlineSize = 16;
/// Slot that page commands (MANAGE_PAGES) use by convention of the driver.
inline constexpr unsigned kPageCommandSlot = 31;

/// One entry of the command queue.
struct CommandQueueEntry {
  static constexpr std::size_t size = 0x40;

  using type = Field<0x0, 8>;            ///< kCommandTransportPci.
  using input_length = Field<0x20, 32>;  ///< Bytes of input, the inline part included.
  using input_mailbox_pointer_63_32 = Field<0x40, 32>;
  using input_mailbox_pointer_31_9 = Field<0x60, 23>;    ///< Mailboxes are 512 byte aligned.
  using command_input_inline_data = Block<0x10, 0x10>;   ///< First 16 bytes of input.
  using command_output_inline_data = Block<0x20, 0x10>;  ///< First 16 bytes of output.
  using output_mailbox_pointer_63_32 = Field<0x180, 32>;
  using output_mailbox_pointer_31_9 = Field<0x1a0, 23>;
  using output_length = Field<0x1c0, 32>;  ///< Bytes of output, the inline part included.
  using token = Field<0x1e0, 8>;           ///< Repeated in each mailbox block of the command.
  using signature =
      Field<0x1e8, 8>;             ///< Complement of the XOR of the entry, when checksums are on.
  using status = Field<0x1f8, 7>;  ///< CommandDeliveryStatus.
  using ownership = Field<0x1ff, 1>;                ///< 1: the device owns the entry.
  using input_mailbox_pointer = Field<0x40, 64>;    ///< Whole address, low nine bits reserved.
  using output_mailbox_pointer = Field<0x180, 64>;  ///< Whole address, low nine bits reserved.
  static constexpr std::size_t status_own_byte = 0x3f;
};

/// One mailbox block: 512 bytes of data and a control segment.
struct CommandMailbox {
  static constexpr std::size_t size = 0x240;
  static constexpr std::size_t data_size = 0x200;

  using data = Block<0x0, 0x200>;
  using next_pointer = Field<0x1180, 64>;  ///< Address of the next block, 0 in the last.
  using block_number = Field<0x11c0, 32>;  ///< Counts from 0.
  using token = Field<0x11e8, 8>;          ///< Token of the entry.
  using ctrl_signature =
      Field<0x11f0, 8>;  ///< Complement of the XOR of the control segment (bytes 0x200 to 0x23e).
  using signature = Field<0x11f8, 8>;  ///< Complement of the XOR of the whole block.
};
static_assert(CommandMailbox::next_pointer::byte_offset == 0x230);

/// CommandQueueEntry::status: whether the command reached its executor.
enum class CommandDeliveryStatus : std::uint8_t {
  ok = 0x0,
  signature_error = 0x1,
  token_error = 0x2,
  bad_block_number = 0x3,
  bad_output_pointer = 0x4,
  bad_input_pointer = 0x5,
  internal_error = 0x6,
  input_length_error = 0x7,
  output_length_error = 0x8,
  reserved_not_zero = 0x9,
  bad_command_type = 0x10,
};

/// Head of every command input.
struct CommandInput {
  static constexpr std::size_t size = 0x8;

  using opcode = Field<0x0, 16>;   ///< CommandOpcode.
  using uid = Field<0x10, 16>;     ///< User context of the caller; 0 is the kernel.
  using op_mod = Field<0x30, 16>;  ///< Variant of the command.
};

/// Head of every command output.
struct CommandOutput {
  static constexpr std::size_t size = 0x8;

  using status = Field<0x0, 8>;      ///< CommandStatus.
  using syndrome = Field<0x20, 32>;  ///< Where exactly the command failed.
};

}  // namespace softhca::prm
