// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The command queue against a driver that makes every mistake (PRM "Command Interface").
#include "hw-model/firmware/command_queue.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "hw-model/firmware/command_signature.h"
#include "tests/support/guest_memory.h"

namespace softhca::test {
namespace {

using prm::CommandDeliveryStatus;
using prm::CommandMailbox;
using prm::CommandQueueEntry;

/// Copies the input to the output and counts.
class EchoExecutor final : public CommandExecutor {
 public:
  void execute(std::span<const std::uint8_t> in, std::span<std::uint8_t> out) override {
    executed.emplace_back(in.begin(), in.end());
    std::memcpy(out.data(), in.data(), std::min(in.size(), out.size()));
  }
  bool completion_by_event() const override { return events; }
  void commands_completed(std::uint32_t vector) override { completed.push_back(vector); }
  void command_queue_lost() override { ++lost; }

  std::vector<std::vector<std::uint8_t>> executed;
  std::vector<std::uint32_t> completed;
  bool events = false;
  int lost = 0;
};

/// Memory that is not there until `present`.
class LateMemory final : public DmaBacking {
 public:
  explicit LateMemory(std::size_t size) : bytes(size) {}
  DmaStatus read(std::uint64_t offset, void* to, std::size_t length) override {
    if (!present) return DmaStatus::pending;
    std::memcpy(to, bytes.data() + offset, length);
    return DmaStatus::ok;
  }
  DmaStatus write(std::uint64_t offset, const void* from, std::size_t length) override {
    if (!present) return DmaStatus::pending;
    std::memcpy(bytes.data() + offset, from, length);
    return DmaStatus::ok;
  }
  std::vector<std::uint8_t> bytes;
  bool present = false;
};

class CommandQueueTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kUnmapped = 0x10;
  static constexpr std::size_t kStride = 1024;

  CommandQueueTest() : memory(4 << 20), queue_address(memory.allocate(4096)), queue(dma, executor) {
    memory.map_into(dma);
    queue.set_address(queue_address);
  }

  std::uint8_t* entry(unsigned slot) { return memory.bytes(queue_address + slot * 64); }

  std::uint64_t chain(unsigned blocks, std::uint8_t token) {
    const std::uint64_t area = memory.allocate(blocks * kStride);
    for (unsigned i = 0; i < blocks; ++i) {
      std::uint8_t* block = memory.bytes(area + i * kStride);
      CommandMailbox::next_pointer::set(block, i + 1 < blocks ? area + (i + 1) * kStride : 0);
      CommandMailbox::block_number::set(block, i);
      CommandMailbox::token::set(block, token);
    }
    return area;
  }

  /// A command of `length` bytes in and out whose input counts up.
  void prepare(unsigned slot, std::size_t length, std::uint8_t token = 0x77) {
    const auto blocks = static_cast<unsigned>(length <= 16 ? 0 : (length - 16 + 511) / 512);
    in_chain = blocks == 0 ? 0 : chain(blocks, token);
    out_chain = blocks == 0 ? 0 : chain(blocks, token);
    std::vector<std::uint8_t> in(length);
    std::iota(in.begin(), in.end(), std::uint8_t{1});
    std::uint8_t* e = entry(slot);
    std::memset(e, 0, CommandQueueEntry::size);
    CommandQueueEntry::type::set(e, prm::kCommandTransportPci);
    CommandQueueEntry::input_length::set(e, length);
    CommandQueueEntry::output_length::set(e, length);
    CommandQueueEntry::input_mailbox_pointer::set(e, in_chain);
    CommandQueueEntry::output_mailbox_pointer::set(e, out_chain);
    CommandQueueEntry::token::set(e, token);
    CommandQueueEntry::ownership::set(e, 1);
    std::memcpy(CommandQueueEntry::command_input_inline_data::at(e), in.data(),
                std::min<std::size_t>(16, length));
    for (unsigned i = 0; i < blocks; ++i) {
      const std::size_t from = 16 + i * 512;
      std::memcpy(memory.at(in_chain + i * kStride), in.data() + from,
                  std::min<std::size_t>(512, length - from));
    }
  }

  std::uint8_t* in_block(unsigned i) { return memory.bytes(in_chain + i * kStride); }
  std::uint8_t* out_block(unsigned i) { return memory.bytes(out_chain + i * kStride); }

  void run(std::uint32_t vector = 1) {
    queue.ring(vector);
    for (int i = 0; i < 10000 && queue.step(16); ++i) {
    }
  }

  bool owned_by_driver(unsigned slot) {
    return CommandQueueEntry::ownership::get(entry(slot)) == 0;
  }
  CommandDeliveryStatus delivery(unsigned slot = 0) {
    return static_cast<CommandDeliveryStatus>(CommandQueueEntry::status::get(entry(slot)));
  }

  /// The rule of most tests: the command came back with this status and did not run.
  void expect_refused(CommandDeliveryStatus status) {
    run();
    EXPECT_TRUE(owned_by_driver(0));
    EXPECT_EQ(delivery(), status);
    EXPECT_TRUE(executor.executed.empty());
  }

  DmaSpace dma;
  EchoExecutor executor;
  GuestMemory memory;
  std::uint64_t queue_address;
  CommandQueue queue;
  std::uint64_t in_chain = 0;
  std::uint64_t out_chain = 0;
};

TEST_F(CommandQueueTest, short_commands_travel_inside_the_entry) {
  prepare(0, 16);
  run();
  ASSERT_EQ(executor.executed.size(), 1U);
  EXPECT_TRUE(owned_by_driver(0));
  EXPECT_EQ(delivery(), CommandDeliveryStatus::ok);
  EXPECT_EQ(std::memcmp(CommandQueueEntry::command_output_inline_data::at(entry(0)),
                        executor.executed[0].data(), 16),
            0);
}

TEST_F(CommandQueueTest, long_commands_go_on_in_mailboxes_both_ways) {
  constexpr std::size_t length = 16 + 512 * 3 + 100;
  prepare(0, length);
  run();
  ASSERT_EQ(executor.executed.size(), 1U);
  ASSERT_EQ(executor.executed[0].size(), length);
  EXPECT_EQ(executor.executed[0][length - 1], static_cast<std::uint8_t>(length));
  EXPECT_EQ(std::memcmp(out_block(3), executor.executed[0].data() + 16 + 512 * 3, 100), 0);
  EXPECT_EQ(CommandMailbox::token::get(out_block(3)), 0x77U)
      << "the control segment is the driver's";
}

TEST_F(CommandQueueTest, a_chain_longer_than_a_step_is_walked_over_several_steps) {
  prepare(0, 16 + 512 * 64);
  queue.ring(1);
  EXPECT_TRUE(queue.step(16));
  EXPECT_TRUE(executor.executed.empty());
  run(0);
  EXPECT_EQ(executor.executed.size(), 1U);
}

TEST_F(CommandQueueTest, an_entry_that_the_driver_owns_is_left_alone) {
  prepare(0, 16);
  CommandQueueEntry::ownership::set(entry(0), 0);
  run();
  EXPECT_TRUE(executor.executed.empty());
}

TEST_F(CommandQueueTest, slots_run_in_the_order_of_their_doorbells) {
  for (const unsigned slot : {3U, 1U, 31U}) {
    prepare(slot, 16);
    CommandQueueEntry::command_input_inline_data::at(entry(slot))[0] =
        static_cast<std::uint8_t>(slot);
    queue.ring(1U << slot);
  }
  run(0);
  ASSERT_EQ(executor.executed.size(), 3U);
  EXPECT_EQ(executor.executed[0][0], 3);
  EXPECT_EQ(executor.executed[1][0], 1);
  EXPECT_EQ(executor.executed[2][0], 31);
}

TEST_F(CommandQueueTest, completions_are_told_by_event_once_there_is_an_event_queue) {
  prepare(2, 16);
  run(4);
  EXPECT_TRUE(executor.completed.empty());
  executor.events = true;
  prepare(2, 16);
  run(4);
  EXPECT_EQ(executor.completed, std::vector<std::uint32_t>{4});
}

TEST_F(CommandQueueTest, another_transport_type_is_refused) {
  prepare(0, 16);
  CommandQueueEntry::type::set(entry(0), 1);
  expect_refused(CommandDeliveryStatus::bad_command_type);
}

TEST_F(CommandQueueTest, lengths_below_the_header_or_beyond_all_commands_are_refused) {
  prepare(0, 16);
  CommandQueueEntry::input_length::set(entry(0), 7);
  expect_refused(CommandDeliveryStatus::input_length_error);
  prepare(0, 16);
  CommandQueueEntry::input_length::set(entry(0), 0xffffffff);
  expect_refused(CommandDeliveryStatus::input_length_error);
  prepare(0, 16);
  CommandQueueEntry::output_length::set(entry(0), 0);
  expect_refused(CommandDeliveryStatus::output_length_error);
  prepare(0, 16);
  CommandQueueEntry::output_length::set(entry(0), 0xfffffff0);
  expect_refused(CommandDeliveryStatus::output_length_error);
}

TEST_F(CommandQueueTest, outputs_are_shorter_than_inputs_can_be) {
  prepare(0, CommandQueue::kMaxOutputLength);
  run();
  EXPECT_EQ(delivery(), CommandDeliveryStatus::ok);
  executor.executed.clear();
  prepare(0, 100 << 10);
  expect_refused(CommandDeliveryStatus::output_length_error);
  prepare(0, 100 << 10);
  CommandQueueEntry::output_length::set(entry(0), 16);
  run();
  EXPECT_EQ(delivery(), CommandDeliveryStatus::ok);
}

TEST_F(CommandQueueTest, unreachable_mailboxes_are_refused_before_the_command_runs) {
  prepare(0, 100);
  CommandQueueEntry::input_mailbox_pointer::set(entry(0), kUnmapped);
  expect_refused(CommandDeliveryStatus::bad_input_pointer);
  prepare(0, 100);
  CommandQueueEntry::output_mailbox_pointer::set(entry(0), 0xfffffffffffffe00);
  expect_refused(CommandDeliveryStatus::bad_output_pointer);
  prepare(0, 1000);
  CommandMailbox::next_pointer::set(out_block(0), 0);
  expect_refused(CommandDeliveryStatus::bad_output_pointer);
}

TEST_F(CommandQueueTest, a_foreign_token_is_refused) {
  prepare(0, 1000);
  CommandMailbox::token::set(in_block(1), 0x11);
  expect_refused(CommandDeliveryStatus::token_error);
  prepare(0, 1000);
  CommandMailbox::token::set(out_block(1), 0x11);
  expect_refused(CommandDeliveryStatus::token_error);
}

TEST_F(CommandQueueTest, a_cyclic_chain_ends_at_its_wrong_block_number) {
  prepare(0, 16 + 512 * 100);
  CommandMailbox::next_pointer::set(in_block(1), in_chain);
  expect_refused(CommandDeliveryStatus::bad_block_number);
}

TEST_F(CommandQueueTest, with_checksums_unsigned_commands_are_refused) {
  queue.set_checksums(true);
  prepare(0, 1000);
  expect_refused(CommandDeliveryStatus::signature_error);
  prepare(0, 1000);
  sign_command_entry({entry(0), CommandQueueEntry::size});
  expect_refused(CommandDeliveryStatus::signature_error);
}

TEST_F(CommandQueueTest, with_checksums_answers_are_signed) {
  queue.set_checksums(true);
  prepare(0, 1000);
  sign_command_entry({entry(0), CommandQueueEntry::size});
  for (unsigned i = 0; i < 2; ++i) sign_command_mailbox({in_block(i), CommandMailbox::size});
  run();
  EXPECT_EQ(delivery(), CommandDeliveryStatus::ok);
  EXPECT_EQ(executor.executed.size(), 1U);
  EXPECT_TRUE(command_entry_signed({entry(0), CommandQueueEntry::size}));
  for (unsigned i = 0; i < 2; ++i)
    EXPECT_TRUE(command_mailbox_signed({out_block(i), CommandMailbox::size}));
}

TEST_F(CommandQueueTest, a_command_whose_memory_is_late_waits_and_others_go_on) {
  const auto late = std::make_shared<LateMemory>(4096);
  DmaSpace::Range range;
  range.iova = 0x700000000;
  range.size = 4096;
  range.backing = late;
  ASSERT_EQ(dma.map(range), std::errc{});
  prepare(0, 100);
  std::memcpy(late->bytes.data(), in_block(0), CommandMailbox::size);
  CommandQueueEntry::input_mailbox_pointer::set(entry(0), range.iova);
  prepare(1, 16);
  run(3);
  EXPECT_FALSE(owned_by_driver(0));
  EXPECT_TRUE(owned_by_driver(1));
  EXPECT_EQ(executor.executed.size(), 1U);
  late->present = true;
  run(0);
  EXPECT_TRUE(owned_by_driver(0));
  EXPECT_EQ(executor.executed.size(), 2U);
}

TEST_F(CommandQueueTest, a_command_runs_once_even_if_its_output_memory_is_late) {
  const auto late = std::make_shared<LateMemory>(4096);
  DmaSpace::Range range;
  range.iova = 0x700000000;
  range.size = 4096;
  range.backing = late;
  ASSERT_EQ(dma.map(range), std::errc{});
  prepare(0, 100);
  std::memcpy(late->bytes.data(), out_block(0), CommandMailbox::size);
  CommandQueueEntry::output_mailbox_pointer::set(entry(0), range.iova);
  run();
  EXPECT_FALSE(owned_by_driver(0));
  late->present = true;
  run(0);
  EXPECT_TRUE(owned_by_driver(0));
  EXPECT_EQ(executor.executed.size(), 1U);
}

TEST_F(CommandQueueTest, an_unreachable_queue_is_fatal) {
  queue.set_address(0x123456000);
  run();
  EXPECT_EQ(executor.lost, 1);
  EXPECT_FALSE(queue.enabled());
}

TEST_F(CommandQueueTest, a_doorbell_for_a_disabled_queue_does_nothing) {
  prepare(0, 16);
  queue.disable();
  run();
  EXPECT_TRUE(executor.executed.empty());
  EXPECT_EQ(executor.lost, 0);
}

}  // namespace
}  // namespace softhca::test
