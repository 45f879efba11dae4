// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/firmware/command_queue.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "hw-model/firmware/command_signature.h"

namespace softhca {
namespace {

using prm::CommandDeliveryStatus;
using prm::CommandMailbox;
using prm::CommandQueueEntry;
using prm::kCommandInlineSize;

constexpr std::uint64_t kMailboxAlignment = 512;

std::uint32_t blocks_for(std::uint64_t length) {
  if (length <= kCommandInlineSize) return 0;
  return static_cast<std::uint32_t>((length - kCommandInlineSize + CommandMailbox::data_size - 1) /
                                    CommandMailbox::data_size);
}

}  // namespace

void CommandQueue::set_address(std::uint64_t iova) {
  disable();
  address_ = iova;
  enabled_ = true;
}

void CommandQueue::disable() {
  enabled_ = false;
  owned_ = 0;
  order_.clear();
  for (Slot& slot : slots_) slot = Slot{};
}

void CommandQueue::ring(std::uint32_t vector) {
  if (!enabled_) return;
  for (unsigned index = 0; index < kSlots; ++index) {
    if ((vector >> index & 1) == 0 || (owned_ >> index & 1) != 0) continue;
    owned_ |= 1U << index;
    slots_[index].phase = Phase::fetch_entry;
    order_.push_back(index);
  }
}

bool CommandQueue::step(unsigned blocks) {
  // One pass over the slots at hand: a parked slot lets the others go on.
  for (std::size_t left = order_.size(); left > 0 && enabled_ && !order_.empty(); --left) {
    if (blocks == 0) return true;
    const unsigned index = order_.front();
    order_.pop_front();
    switch (advance(index, blocks)) {
      case Progress::done:
        if (enabled_) {
          owned_ &= ~(1U << index);
          slots_[index] = Slot{};
        }
        break;
      case Progress::more:
        order_.push_front(index);
        return true;
      case Progress::parked:
        order_.push_back(index);
        break;
    }
  }
  return false;
}

CommandQueue::Progress CommandQueue::advance(unsigned index, unsigned& blocks) {
  Slot& slot = slots_[index];
  while (enabled_) {
    if (blocks == 0) return Progress::more;
    Progress progress = Progress::done;
    switch (slot.phase) {
      case Phase::idle:
        return Progress::done;
      case Phase::fetch_entry:
        progress = fetch_entry(index);
        break;
      case Phase::fetch_input:
        progress = fetch_input(slot, blocks);
        break;
      case Phase::fetch_output_chain:
        progress = fetch_output_chain(slot, blocks);
        break;
      case Phase::execute:
        --blocks;
        execute(slot);
        continue;
      case Phase::write_back:
        return write_back(index, blocks);
    }
    if (progress != Progress::done) return progress;
  }
  return Progress::done;
}

CommandQueue::Progress CommandQueue::fetch_entry(unsigned index) {
  Slot& slot = slots_[index];
  switch (dma_.read(entry_address(index), slot.entry.data(), slot.entry.size())) {
    case DmaStatus::pending:
      return Progress::parked;
    case DmaStatus::fault:
      lose();
      return Progress::done;
    case DmaStatus::ok:
      break;
  }
  const std::uint8_t* entry = slot.entry.data();
  if (CommandQueueEntry::ownership::get(entry) == 0) {
    slot.phase = Phase::idle;  // Rung, but not ours: there is no command.
    return Progress::done;
  }
  const std::uint64_t in_length = CommandQueueEntry::input_length::get(entry);
  const std::uint64_t out_length = CommandQueueEntry::output_length::get(entry);
  slot.phase = Phase::fetch_input;
  if (checksums_ && !command_entry_signed(slot.entry)) {
    refuse(slot, CommandDeliveryStatus::signature_error);
  } else if (CommandQueueEntry::type::get(entry) != prm::kCommandTransportPci) {
    refuse(slot, CommandDeliveryStatus::bad_command_type);
  } else if (in_length < prm::CommandInput::size || in_length > kMaxInputLength) {
    refuse(slot, CommandDeliveryStatus::input_length_error);
  } else if (out_length < prm::CommandOutput::size || out_length > kMaxOutputLength) {
    refuse(slot, CommandDeliveryStatus::output_length_error);
  } else {
    const std::uint8_t* data = CommandQueueEntry::command_input_inline_data::at(entry);
    slot.in.assign(data, data + std::min<std::uint64_t>(in_length, kCommandInlineSize));
    slot.next_block = CommandQueueEntry::input_mailbox_pointer::get(entry);
  }
  return Progress::done;
}

DmaStatus CommandQueue::read_block(const Slot& slot, std::uint32_t number,
                                   CommandDeliveryStatus bad_pointer,
                                   CommandDeliveryStatus& delivery) {
  const std::uint64_t address = slot.next_block & ~(kMailboxAlignment - 1);
  const DmaStatus status =
      address == 0 ? DmaStatus::fault : dma_.read(address, block_.data(), block_.size());
  if (status == DmaStatus::pending) return status;
  if (status == DmaStatus::fault) {
    delivery = bad_pointer;
  } else if (CommandMailbox::block_number::get(block_.data()) != number) {
    delivery = CommandDeliveryStatus::bad_block_number;  // Also what a cyclic chain runs into.
  } else if (CommandMailbox::token::get(block_.data()) !=
             CommandQueueEntry::token::get(slot.entry.data())) {
    delivery = CommandDeliveryStatus::token_error;
  } else {
    delivery = CommandDeliveryStatus::ok;
  }
  return DmaStatus::ok;
}

CommandQueue::Progress CommandQueue::fetch_input(Slot& slot, unsigned& blocks) {
  const std::uint64_t length = CommandQueueEntry::input_length::get(slot.entry.data());
  for (const std::uint32_t count = blocks_for(length); slot.blocks_done < count;
       ++slot.blocks_done) {
    if (blocks == 0) return Progress::more;
    --blocks;
    CommandDeliveryStatus delivery{};
    if (read_block(slot, slot.blocks_done, CommandDeliveryStatus::bad_input_pointer, delivery) ==
        DmaStatus::pending) {
      return Progress::parked;
    }
    if (delivery == CommandDeliveryStatus::ok && checksums_ && !command_mailbox_signed(block_)) {
      delivery = CommandDeliveryStatus::signature_error;
    }
    if (delivery != CommandDeliveryStatus::ok) {
      refuse(slot, delivery);
      return Progress::done;
    }
    const std::uint64_t take =
        std::min<std::uint64_t>(CommandMailbox::data_size, length - slot.in.size());
    slot.in.insert(slot.in.end(), block_.data(), block_.data() + take);
    slot.next_block = CommandMailbox::next_pointer::get(block_.data());
  }
  slot.phase = Phase::fetch_output_chain;
  slot.blocks_done = 0;
  slot.next_block = CommandQueueEntry::output_mailbox_pointer::get(slot.entry.data());
  return Progress::done;
}

CommandQueue::Progress CommandQueue::fetch_output_chain(Slot& slot, unsigned& blocks) {
  const std::uint64_t length = CommandQueueEntry::output_length::get(slot.entry.data());
  for (const std::uint32_t count = blocks_for(length); slot.blocks_done < count;
       ++slot.blocks_done) {
    if (blocks == 0) return Progress::more;
    --blocks;
    CommandDeliveryStatus delivery{};
    if (read_block(slot, slot.blocks_done, CommandDeliveryStatus::bad_output_pointer, delivery) ==
        DmaStatus::pending) {
      return Progress::parked;
    }
    if (delivery != CommandDeliveryStatus::ok) {
      refuse(slot, delivery);
      return Progress::done;
    }
    slot.out_blocks.push_back(slot.next_block & ~(kMailboxAlignment - 1));
    slot.next_block = CommandMailbox::next_pointer::get(block_.data());
  }
  slot.phase = Phase::execute;
  return Progress::done;
}

void CommandQueue::execute(Slot& slot) {
  slot.out.assign(CommandQueueEntry::output_length::get(slot.entry.data()), 0);
  slot.by_event = executor_.completion_by_event();
  slot.blocks_done = 0;
  slot.phase = Phase::write_back;
  executor_.execute(slot.in, slot.out);
}

void CommandQueue::refuse(Slot& slot, CommandDeliveryStatus status) {
  slot.delivery = status;
  slot.by_event = executor_.completion_by_event();
  slot.out.clear();
  slot.out_blocks.clear();
  slot.blocks_done = 0;
  slot.phase = Phase::write_back;
}

CommandQueue::Progress CommandQueue::write_back(unsigned index, unsigned& blocks) {
  Slot& slot = slots_[index];
  for (; slot.blocks_done < slot.out_blocks.size(); ++slot.blocks_done) {
    if (blocks == 0) return Progress::more;
    --blocks;
    if (write_block(slot, slot.blocks_done) == Progress::parked) return Progress::parked;
  }
  return hand_back(index);
}

CommandQueue::Progress CommandQueue::write_block(Slot& slot, std::uint32_t number) {
  const std::size_t from = kCommandInlineSize + std::size_t{number} * CommandMailbox::data_size;
  const std::size_t length = std::min(CommandMailbox::data_size, slot.out.size() - from);
  const std::uint64_t address = slot.out_blocks[number];
  DmaStatus status = DmaStatus::ok;
  if (checksums_) {
    // The signature covers the whole block, so the driver's part of it has to be read again.
    status = dma_.read(address, block_.data(), block_.size());
    if (status == DmaStatus::ok) {
      std::memcpy(block_.data(), slot.out.data() + from, length);
      sign_command_mailbox(block_);
      status = dma_.write(address, block_.data(), block_.size());
    }
  } else {
    status = dma_.write(address, slot.out.data() + from, length);
  }
  if (status == DmaStatus::pending) return Progress::parked;
  if (status == DmaStatus::fault) slot.delivery = CommandDeliveryStatus::bad_output_pointer;
  return Progress::done;
}

CommandQueue::Progress CommandQueue::hand_back(unsigned index) {
  Slot& slot = slots_[index];
  std::uint8_t* entry = slot.entry.data();
  if (!slot.out.empty()) {
    std::memcpy(CommandQueueEntry::command_output_inline_data::at(entry), slot.out.data(),
                std::min(slot.out.size(), kCommandInlineSize));
  }
  CommandQueueEntry::status::set(entry, static_cast<std::uint8_t>(slot.delivery));
  CommandQueueEntry::ownership::set(entry, 0);
  if (checksums_) sign_command_entry(slot.entry);

  // The driver polls the last byte, so it is stored by itself and after everything else.
  constexpr std::size_t first = CommandQueueEntry::command_output_inline_data::offset;
  constexpr std::size_t last = CommandQueueEntry::status_own_byte;
  DmaStatus status = dma_.write(entry_address(index) + first, entry + first, last - first);
  if (status == DmaStatus::ok) {
    std::atomic_thread_fence(std::memory_order_release);
    status = dma_.write(entry_address(index) + last, entry + last, 1);
  }
  if (status == DmaStatus::pending) return Progress::parked;
  if (status == DmaStatus::fault) {
    lose();
    return Progress::done;
  }
  if (slot.by_event) executor_.commands_completed(1U << index);
  return Progress::done;
}

void CommandQueue::lose() {
  disable();
  executor_.command_queue_lost();
}

}  // namespace softhca
