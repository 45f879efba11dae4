// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/host/device/command_queue.h"

#include <sched.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

#include "hw-model/prm/iseg.h"

namespace softhca::shim {
namespace {

using prm::CommandMailbox;
using prm::CommandQueueEntry;
using Iseg = prm::InitializationSegment;

constexpr std::uint16_t kInterfaceRevision = 5;
/// Distance of mailbox blocks: they need 512-byte alignment and do not cross pages.
constexpr std::size_t kMailboxStride = 1024;
/// How long a command is waited for by yields, which is as long as most of them take. Then by short
/// naps: who has yielded often may keep the processor through all further yields. Then by longer
/// ones, looking after what else may be wrong.
constexpr std::chrono::microseconds kYielding(50);
constexpr std::chrono::microseconds kNap(5);
constexpr unsigned kNaps = 20;
constexpr std::chrono::microseconds kSleep(50);

std::size_t mailbox_count(std::size_t length) {
  if (length <= prm::kCommandInlineSize) return 0;
  return (length - prm::kCommandInlineSize + CommandMailbox::data_size - 1) /
         CommandMailbox::data_size;
}

/// Chains the blocks of a command of `length` bytes and marks them with its token.
void chain(std::uint8_t* blocks, std::uint64_t iova, std::size_t length, std::uint8_t token) {
  const std::size_t count = mailbox_count(length);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint8_t* const block = blocks + i * kMailboxStride;
    std::memset(block, 0, CommandMailbox::size);
    CommandMailbox::next_pointer::set(block, i + 1 < count ? iova + (i + 1) * kMailboxStride : 0);
    CommandMailbox::block_number::set(block, i);
    CommandMailbox::token::set(block, token);
  }
}

template <typename Field>
std::uint32_t word_with(std::uint64_t value) {
  std::uint8_t word[8] = {};
  prm::Field<Field::bit_offset % 32, Field::width>::set(word, value);
  std::uint32_t raw = 0;
  std::memcpy(&raw, word, sizeof(raw));
  return raw;
}

}  // namespace

int command_status_error(std::uint8_t status) {
  using prm::CommandStatus;
  switch (static_cast<CommandStatus>(status)) {
    case CommandStatus::ok:
      return 0;
    case CommandStatus::internal_error:
    case CommandStatus::bad_system_state:
    case CommandStatus::bad_input_length:
    case CommandStatus::bad_output_length:
      return EIO;
    case CommandStatus::resource_busy:
      return EBUSY;
    case CommandStatus::exceeds_limit:
      return ENOMEM;
    case CommandStatus::no_resources:
      return EAGAIN;
    case CommandStatus::bad_opcode:
    case CommandStatus::bad_parameter:
    case CommandStatus::bad_resource:
    case CommandStatus::bad_resource_state:
    case CommandStatus::bad_index:
    case CommandStatus::bad_qp_state:
    case CommandStatus::bad_packet:
    case CommandStatus::bad_size_outstanding_cqes:
      return EINVAL;
  }
  return EIO;
}

std::uint64_t CommandQueue::Mailboxes::first(std::size_t length) const {
  return mailbox_count(length) == 0 ? 0 : block.iova;
}

runtime::Result<std::unique_ptr<CommandQueue>> CommandQueue::open(PciDevice& device,
                                                                  DmaArena& arena) {
  std::unique_ptr<CommandQueue> queue(new CommandQueue(device, arena));
  if (auto started = queue->start(); !started) return started.error();
  return queue;
}

CommandQueue::~CommandQueue() {
  for (const Slot* slot : {&normal_, &pages_}) {
    if (slot->input.block.data != nullptr) arena_.release(slot->input.block);
    if (slot->output.block.data != nullptr) arena_.release(slot->output.block);
  }
  if (queue_.data != nullptr) arena_.release(queue_);
}

bool CommandQueue::prepare(Slot& slot, unsigned index) {
  const std::size_t bytes = mailbox_count(kMaxLength) * kMailboxStride;
  const auto input = arena_.allocate(bytes);
  const auto output = arena_.allocate(bytes);
  if (!input || !output) return false;
  slot.index = index;
  slot.input.block = *input;
  slot.output.block = *output;
  return true;
}

runtime::Result<runtime::Done> CommandQueue::start() {
  std::array<std::uint8_t, 0x200> head{};
  const auto deadline = std::chrono::steady_clock::now() + timeout_;
  for (;;) {
    const int error = device_.bar_read(0, std::as_writable_bytes(std::span(head)));
    if (error != 0) return runtime::system_error(error, "reading the initialization segment");
    if (Iseg::initializing::get(head.data()) == 0) break;
    if (std::chrono::steady_clock::now() > deadline) {
      return runtime::system_error(ETIMEDOUT, "the device stays in its initialization");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (Iseg::cmd_interface_rev::get(head.data()) != kInterfaceRevision) {
    return runtime::Error{EPROTO, "the device speaks another revision of the command interface"};
  }
  log_stride_ = static_cast<unsigned>(Iseg::log_cmdq_stride::get(head.data()));
  const auto log_size = static_cast<unsigned>(Iseg::log_cmdq_size::get(head.data()));
  if (log_stride_ < 6 || log_stride_ + log_size > 12 || (1U << log_size) <= prm::kPageCommandSlot) {
    return runtime::Error{EPROTO, "the device has a command queue of an unknown shape"};
  }
  const auto queue = arena_.allocate(DmaArena::kPage);
  if (!queue || !prepare(normal_, 0) || !prepare(pages_, prm::kPageCommandSlot)) {
    return runtime::system_error(ENOMEM, "memory of the command queue");
  }
  queue_ = *queue;
  const std::uint32_t high = word_with<Iseg::cmdq_phy_addr_63_32>(queue_.iova >> 32);
  const std::uint32_t low = word_with<Iseg::cmdq_phy_addr_31_12>(queue_.iova >> 12);
  int error = device_.bar_write(Iseg::cmdq_phy_addr_63_32::byte_offset,
                                std::as_bytes(std::span(&high, 1)), false);
  if (error == 0) {
    error = device_.bar_write(Iseg::cmdq_phy_addr_31_12::byte_offset,
                              std::as_bytes(std::span(&low, 1)), false);
  }
  if (error != 0) return runtime::system_error(error, "giving the device its command queue");
  return runtime::Done{};
}

std::uint8_t* CommandQueue::entry(const Slot& slot) const {
  return queue_.data + (static_cast<std::size_t>(slot.index) << log_stride_);
}

void CommandQueue::fill(const Slot& slot, std::span<const std::uint8_t> in,
                        std::size_t out_length) {
  if (++token_ == 0) ++token_;
  chain(slot.input.block.data, slot.input.block.iova, in.size(), token_);
  chain(slot.output.block.data, slot.output.block.iova, out_length, token_);
  const std::size_t inlined = std::min(in.size(), prm::kCommandInlineSize);
  for (std::size_t done = inlined, block = 0; done < in.size(); ++block) {
    const std::size_t part = std::min(in.size() - done, CommandMailbox::data_size);
    std::memcpy(slot.input.block.data + block * kMailboxStride, in.data() + done, part);
    done += part;
  }

  std::uint8_t* const at = entry(slot);
  std::uint8_t next[CommandQueueEntry::size] = {};
  CommandQueueEntry::type::set(next, prm::kCommandTransportPci);
  CommandQueueEntry::input_length::set(next, in.size());
  CommandQueueEntry::output_length::set(next, out_length);
  CommandQueueEntry::input_mailbox_pointer::set(next, slot.input.first(in.size()));
  CommandQueueEntry::output_mailbox_pointer::set(next, slot.output.first(out_length));
  CommandQueueEntry::token::set(next, token_);
  std::memcpy(next + CommandQueueEntry::command_input_inline_data::offset, in.data(), inlined);
  std::memcpy(at, next, CommandQueueEntry::status_own_byte);
  // The owner bit hands everything above to the device.
  std::atomic_ref<std::uint8_t>(at[CommandQueueEntry::status_own_byte])
      .store(1, std::memory_order_release);
}

bool CommandQueue::wait(const Slot& slot) {
  // The engine needs longer for a map, and a yield does not always give it this processor.
  if (!device_.await_maps()) return false;
  const auto start = std::chrono::steady_clock::now();
  const auto is_done = [this, &slot] {
    std::atomic_ref<std::uint8_t> owner(entry(slot)[CommandQueueEntry::status_own_byte]);
    return (owner.load(std::memory_order_acquire) & 1) == 0;
  };
  while (!is_done() && std::chrono::steady_clock::now() - start < kYielding) ::sched_yield();
  for (unsigned round = 0; !is_done(); ++round) {
    std::this_thread::sleep_for(round < kNaps ? kNap : kSleep);
    if (round < kNaps || is_done()) continue;
    if (round == kNaps && !doorbell_.ring_register(slot.index)) return false;
    if (waiting_hook_ && depth_ == 1) waiting_hook_();
    if (device_.serve() != 0 || std::chrono::steady_clock::now() > start + timeout_) return false;
  }
  return true;
}

CommandResult CommandQueue::collect(const Slot& slot, std::span<std::uint8_t> out,
                                    std::uint16_t opcode) {
  const std::uint8_t* const at = entry(slot);
  const auto delivery = static_cast<std::uint8_t>(CommandQueueEntry::status::get(at));
  if (delivery != 0) {
    spdlog::error("{}: not delivered, status {:#x}", prm::command_name(opcode), delivery);
    return {EIO, 0, 0};
  }
  const std::size_t inlined = std::min(out.size(), prm::kCommandInlineSize);
  std::memcpy(out.data(), at + CommandQueueEntry::command_output_inline_data::offset, inlined);
  for (std::size_t done = inlined, block = 0; done < out.size(); ++block) {
    const std::size_t part = std::min(out.size() - done, CommandMailbox::data_size);
    std::memcpy(out.data() + done, slot.output.block.data + block * kMailboxStride, part);
    done += part;
  }
  CommandResult result;
  result.status = static_cast<std::uint8_t>(prm::CommandOutput::status::get(out.data()));
  result.syndrome = static_cast<std::uint32_t>(prm::CommandOutput::syndrome::get(out.data()));
  result.error = command_status_error(result.status);
  if (result.error != 0) {
    spdlog::debug("{}: {} (syndrome {:#x})", prm::command_name(opcode),
                  prm::command_status_name(result.status), result.syndrome);
  }
  return result;
}

CommandResult CommandQueue::execute(std::span<const std::uint8_t> in, std::span<std::uint8_t> out) {
  if (!alive_) return {ENODEV, 0, 0};
  if (in.size() < prm::CommandInput::size || out.size() < prm::CommandOutput::size ||
      in.size() > kMaxLength || out.size() > kMaxLength || depth_ > 1) {
    return {EINVAL, 0, 0};
  }
  const auto opcode = static_cast<std::uint16_t>(prm::CommandInput::opcode::get(in.data()));
  const Slot& slot = depth_ == 0 ? normal_ : pages_;
  ++depth_;
  fill(slot, in, out.size());
  const bool done = doorbell_.ring(slot.index) && wait(slot);
  doorbell_.waited();
  --depth_;
  if (!done) {
    alive_ = false;
    spdlog::error("{}: the device did not answer; it is given up", prm::command_name(opcode));
    return {ETIMEDOUT, 0, 0};
  }
  return collect(slot, out, opcode);
}

}  // namespace softhca::shim
