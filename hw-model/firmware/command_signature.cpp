// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/firmware/command_signature.h"

#include "hw-model/prm/command_queue.h"

namespace softhca {
namespace {

using prm::CommandMailbox;
using prm::CommandQueueEntry;

/// The control segment with its own signature, without the signature of the block.
constexpr std::size_t kControlOffset = CommandMailbox::data_size;
constexpr std::size_t kControlSize = CommandMailbox::size - kControlOffset - 1;

}  // namespace

void sign_command_entry(std::span<std::uint8_t> entry) {
  CommandQueueEntry::signature::set(entry.data(), 0);
  CommandQueueEntry::signature::set(entry.data(), static_cast<std::uint8_t>(~xor8(entry)));
}

void sign_command_mailbox(std::span<std::uint8_t> block) {
  CommandMailbox::ctrl_signature::set(block.data(), 0);
  CommandMailbox::signature::set(block.data(), 0);
  const auto control = block.subspan(kControlOffset, kControlSize);
  CommandMailbox::ctrl_signature::set(block.data(), static_cast<std::uint8_t>(~xor8(control)));
  CommandMailbox::signature::set(block.data(), static_cast<std::uint8_t>(~xor8(block)));
}

bool command_entry_signed(std::span<const std::uint8_t> entry) {
  return xor8(entry) == 0xff;
}

bool command_mailbox_signed(std::span<const std::uint8_t> block) {
  return xor8(block.subspan(kControlOffset, kControlSize)) == 0xff && xor8(block) == 0xff;
}

}  // namespace softhca
