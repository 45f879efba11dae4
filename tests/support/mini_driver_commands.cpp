// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Registers, command posting and bring-up.
#include <algorithm>
#include <cstring>
#include <string>

#include "hw-model/device/config_space.h"
#include "hw-model/firmware/command_signature.h"
#include "hw-model/prm/commands_hca.h"
#include "hw-model/prm/commands_resources.h"
#include "hw-model/prm/hca_cap.h"
#include "hw-model/prm/iseg.h"
#include "tests/support/mini_driver.h"

namespace softhca::test {
namespace {

using prm::CommandMailbox;
using prm::CommandOpcode;
using prm::CommandQueueEntry;

constexpr std::size_t kMailboxStride = 1024;  // a block of 576 bytes, aligned
constexpr std::uint64_t kAsyncEvents = 0x1f02be;
constexpr std::uint64_t kCommandAndPageEvents = 1ULL << 0x0a | 1ULL << 0x0b;

/// Of a device in this process.
class FunctionRegisters final : public Registers {
 public:
  explicit FunctionRegisters(Function& function) : function_(function) {}
  void read(std::uint64_t offset, std::span<std::byte> to) override {
    function_.bar_read(offset, to);
  }
  void write(std::uint64_t offset, std::span<const std::byte> from) override {
    function_.bar_write(offset, from);
  }
  void enable_bus_master() override {
    constexpr std::array<std::byte, 2> kMemoryAndBusMaster{std::byte{6}, std::byte{0}};
    function_.config_write(ConfigSpace::kCommand, kMemoryAndBusMaster);
  }

 private:
  Function& function_;
};

unsigned blocks_for(std::size_t length) {
  if (length <= prm::kCommandInlineSize) return 0;
  return static_cast<unsigned>((length - prm::kCommandInlineSize + CommandMailbox::data_size - 1) /
                               CommandMailbox::data_size);
}

}  // namespace

CommandBuffer::CommandBuffer(CommandOpcode opcode, std::size_t size, std::uint16_t op_mod)
    : bytes_(size) {
  prm::CommandInput::opcode::set(bytes_.data(), static_cast<std::uint16_t>(opcode));
  prm::CommandInput::op_mod::set(bytes_.data(), op_mod);
}

CommandBuffer& CommandBuffer::append(std::span<const std::uint64_t> addresses) {
  for (const std::uint64_t address : addresses) {
    bytes_.resize(bytes_.size() + 8);
    prm::Field<0, 64>::set(bytes_.data() + bytes_.size() - 8, address);
  }
  return *this;
}

MiniDriver::MiniDriver(Function& function, std::uint64_t memory_size, std::function<void()> pump)
    : own_registers_(std::make_unique<FunctionRegisters>(function)),
      registers_(*own_registers_),
      memory_(memory_size),
      pump_(std::move(pump)) {
  if (!pump_) pump_ = [&function] { function.step({}); };
  memory_.map_into(function.dma());
  registers_.enable_bus_master();
  command_queue_ = memory_.allocate(GuestMemory::kPage);
}

MiniDriver::MiniDriver(Registers& registers, std::uint64_t memory_size, std::function<void()> pump)
    : registers_(registers),
      memory_(memory_size, 0x100000000ULL, GuestMemory::Kind::shared),
      pump_(std::move(pump)) {
  command_queue_ = memory_.allocate(GuestMemory::kPage);
}

std::uint32_t MiniDriver::read32(std::uint64_t offset) {
  std::array<std::byte, 4> bytes{};
  registers_.read(offset, bytes);
  return static_cast<std::uint32_t>(
      prm::Field<0, 32>::get(reinterpret_cast<const std::uint8_t*>(bytes.data())));
}

void MiniDriver::write32(std::uint64_t offset, std::uint32_t value) {
  std::array<std::byte, 4> bytes{};
  prm::Field<0, 32>::set(reinterpret_cast<std::uint8_t*>(bytes.data()), value);
  registers_.write(offset, bytes);
}

void MiniDriver::write64(std::uint64_t offset, std::uint32_t first, std::uint32_t second) {
  std::array<std::byte, 8> bytes{};
  prm::Field<0, 64>::set(reinterpret_cast<std::uint8_t*>(bytes.data()),
                         std::uint64_t{first} << 32 | second);
  registers_.write(offset, bytes);
}

void MiniDriver::start_command_queue() {
  using Iseg = prm::InitializationSegment;
  write32(Iseg::cmdq_phy_addr_63_32::byte_offset, static_cast<std::uint32_t>(command_queue_ >> 32));
  write32(Iseg::cmdq_phy_addr_31_12::byte_offset, static_cast<std::uint32_t>(command_queue_));
}

std::uint64_t MiniDriver::chain(std::uint64_t& area, unsigned& capacity, unsigned blocks,
                                std::uint8_t token) {
  if (blocks == 0) return 0;
  if (blocks > capacity) {
    area = memory_.allocate(std::uint64_t{blocks} * kMailboxStride);
    capacity = blocks;
  }
  for (unsigned i = 0; i < blocks; ++i) {
    std::uint8_t* block = memory_.bytes(area + i * kMailboxStride);
    std::memset(block, 0, CommandMailbox::size);
    CommandMailbox::next_pointer::set(block, i + 1 < blocks ? area + (i + 1) * kMailboxStride : 0);
    CommandMailbox::block_number::set(block, i);
    CommandMailbox::token::set(block, token);
  }
  return area;
}

void MiniDriver::prepare(unsigned slot, std::span<const std::uint8_t> in, std::size_t out_length) {
  SlotMemory& memory = slots_.at(slot);
  token_ = static_cast<std::uint8_t>(token_ % 255 + 1);
  const std::uint64_t in_chain =
      chain(memory.in_mailboxes, memory.in_blocks, blocks_for(in.size()), token_);
  const std::uint64_t out_chain =
      chain(memory.out_mailboxes, memory.out_blocks, blocks_for(out_length), token_);
  memory.out_length = out_length;

  std::uint8_t* e = entry(slot);
  std::memset(e, 0, CommandQueueEntry::size);
  CommandQueueEntry::type::set(e, prm::kCommandTransportPci);
  CommandQueueEntry::input_length::set(e, in.size());
  CommandQueueEntry::output_length::set(e, out_length);
  CommandQueueEntry::input_mailbox_pointer::set(e, in_chain);
  CommandQueueEntry::output_mailbox_pointer::set(e, out_chain);
  CommandQueueEntry::token::set(e, token_);
  CommandQueueEntry::ownership::set(e, 1);
  std::memcpy(CommandQueueEntry::command_input_inline_data::at(e), in.data(),
              std::min(in.size(), prm::kCommandInlineSize));
  for (unsigned i = 0; i < blocks_for(in.size()); ++i) {
    const std::size_t from = prm::kCommandInlineSize + i * CommandMailbox::data_size;
    std::memcpy(input_mailbox(slot, i), in.data() + from,
                std::min(CommandMailbox::data_size, in.size() - from));
  }
  if (signing_) sign(slot);
}

void MiniDriver::sign(unsigned slot) {
  std::uint8_t* e = entry(slot);
  sign_command_entry({e, CommandQueueEntry::size});
  const auto blocks = blocks_for(CommandQueueEntry::input_length::get(e));
  for (unsigned i = 0; i < blocks; ++i)
    sign_command_mailbox({input_mailbox(slot, i), CommandMailbox::size});
}

std::uint8_t* MiniDriver::entry(unsigned slot) {
  return memory_.bytes(command_queue_ + slot * 64);
}

std::uint8_t* MiniDriver::input_mailbox(unsigned slot, unsigned block) {
  return memory_.bytes(slots_.at(slot).in_mailboxes + block * kMailboxStride);
}

std::uint8_t* MiniDriver::output_mailbox(unsigned slot, unsigned block) {
  return memory_.bytes(slots_.at(slot).out_mailboxes + block * kMailboxStride);
}

void MiniDriver::ring(std::uint32_t vector) {
  write32(prm::InitializationSegment::command_doorbell_vector::byte_offset, vector);
}

bool MiniDriver::completed(unsigned slot) {
  return CommandQueueEntry::ownership::get(entry(slot)) == 0;
}

CommandReply MiniDriver::collect(unsigned slot) {
  const std::uint8_t* e = entry(slot);
  CommandReply reply;
  reply.delivery = static_cast<prm::CommandDeliveryStatus>(CommandQueueEntry::status::get(e));
  reply.out.assign(slots_.at(slot).out_length, 0);
  std::memcpy(reply.out.data(), CommandQueueEntry::command_output_inline_data::at(e),
              std::min(reply.out.size(), prm::kCommandInlineSize));
  for (unsigned i = 0; i < blocks_for(reply.out.size()); ++i) {
    const std::size_t from = prm::kCommandInlineSize + i * CommandMailbox::data_size;
    std::memcpy(reply.out.data() + from, output_mailbox(slot, i),
                std::min(CommandMailbox::data_size, reply.out.size() - from));
  }
  reply.status = static_cast<prm::CommandStatus>(prm::CommandOutput::status::get(reply.out.data()));
  reply.syndrome = static_cast<std::uint32_t>(prm::CommandOutput::syndrome::get(reply.out.data()));
  return reply;
}

CommandReply MiniDriver::run(const CommandBuffer& in, std::size_t out_length) {
  prepare(0, in.bytes(), out_length);
  ring(1);
  if (!pump_until([this] { return completed(0); })) throw DriverError("command timed out");
  // A command event per command would fill the queue.
  if (command_eq_.eqn != 0) {
    while (poll_eq(command_eq_)) {
    }
    update_eq(command_eq_);
  }
  return collect(0);
}

CommandReply MiniDriver::must(const CommandBuffer& in, std::size_t out_length) {
  CommandReply reply = run(in, out_length);
  if (!reply.ok()) {
    const auto opcode =
        static_cast<std::uint16_t>(prm::CommandInput::opcode::get(in.bytes().data()));
    throw DriverError(
        std::string(prm::command_name(opcode)) + ": delivery " +
        std::to_string(static_cast<unsigned>(reply.delivery)) + ", " +
        std::string(prm::command_status_name(static_cast<std::uint8_t>(reply.status))) +
        ", syndrome " + std::to_string(reply.syndrome & 0xffff));
  }
  return reply;
}

void MiniDriver::give_pages(std::uint32_t count) {
  std::vector<std::uint64_t> pages(count);
  for (std::uint64_t& page : pages) page = memory_.allocate(GuestMemory::kPage);
  CommandBuffer give(CommandOpcode::manage_pages, prm::ManagePagesInput::size,
                     static_cast<std::uint16_t>(prm::ManagePagesOp::give));
  give.set<prm::ManagePagesInput::input_num_entries>(count).append(pages);
  must(give);
}

void MiniDriver::initialize_hca() {
  registers_.enable_bus_master();
  start_command_queue();
  must({CommandOpcode::enable_hca, 16}, 12);
  must({CommandOpcode::query_issi, 16}, prm::QueryIssiOutput::size);
  CommandBuffer issi(CommandOpcode::set_issi, 16);
  must(issi.set<prm::SetIssiInput::current_issi>(1));
  for (const auto op : {prm::QueryPagesOp::boot, prm::QueryPagesOp::init}) {
    const CommandReply pages =
        must({CommandOpcode::query_pages, 16, static_cast<std::uint16_t>(op)});
    give_pages(static_cast<std::uint32_t>(prm::QueryPagesOutput::num_pages::get(pages.out.data())));
    if (op != prm::QueryPagesOp::boot) continue;
    const auto atomic =
        static_cast<std::uint16_t>(static_cast<unsigned>(prm::HcaCapType::atomic) << 1);
    const CommandReply caps =
        must({CommandOpcode::query_hca_cap, 16, static_cast<std::uint16_t>(atomic | 1)},
             prm::QueryHcaCapOutput::size);
    CommandBuffer set(CommandOpcode::set_hca_cap, prm::SetHcaCapInput::size, atomic);
    std::memcpy(set.at<prm::SetHcaCapInput::capability>(),
                prm::QueryHcaCapOutput::capability::at(caps.out.data()), prm::kHcaCapAreaSize);
    prm::AtomicCaps::atomic_req_8B_endianness_mode::set(set.at<prm::SetHcaCapInput::capability>(),
                                                        1);
    must(set);
  }
  must({CommandOpcode::init_hca, prm::InitHcaInput::size});
}

void MiniDriver::bring_up() {
  initialize_hca();
  uar_ = allocate_uar();
  pd_ = static_cast<std::uint32_t>(
      prm::AllocPdOutput::pd::get(must({CommandOpcode::alloc_pd, 16}).out.data()));
  command_eq_ = create_eq(8, kCommandVector, kCommandAndPageEvents);
  async_eq_ = create_eq(8, kAsyncVector, kAsyncEvents);
  completion_eq_ = create_eq(10, kCompletionVector, 0);
}

std::uint32_t MiniDriver::allocate_uar() {
  return static_cast<std::uint32_t>(
      prm::AllocUarOutput::uar::get(must({CommandOpcode::alloc_uar, 16}).out.data()));
}

void MiniDriver::tear_down() {
  command_eq_ = {};
  async_eq_ = {};
  completion_eq_ = {};
  must({CommandOpcode::teardown_hca, 16});
  must({CommandOpcode::disable_hca, 16}, 12);
}

bool MiniDriver::pump_until(const std::function<bool()>& done, unsigned limit) {
  for (unsigned i = 0; i < limit; ++i) {
    if (done()) return true;
    pump_();
  }
  return done();
}

}  // namespace softhca::test
