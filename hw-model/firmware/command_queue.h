// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "hw-model/firmware/command.h"
#include "hw-model/memory/dma_space.h"
#include "hw-model/prm/command_queue.h"

namespace softhca {

/// The command queue in host memory (PRM "Command Interface"): takes entries whose doorbell bit was
/// rung, gathers their input from inline data and mailbox blocks, has them executed, scatters the
/// output and hands the entry back.
///
/// Everything an entry says is checked before the command runs, the output chain too, so that a
/// command either runs and can answer or does not run at all. Entries are read once. Work is
/// bounded per call: a long mailbox chain is walked over several steps. Several slots are in flight
/// at once and run in the order of their doorbells.
class CommandQueue {
 public:
  static constexpr unsigned kLogSize = 5;
  static constexpr unsigned kLogStride = 6;
  static constexpr unsigned kSlots = 1U << kLogSize;
  /// Longest input of a command, in bytes: the page list of a memory key.
  static constexpr std::uint32_t kMaxInputLength = 64U << 20;
  /// Longest output, in bytes: the page list of MANAGE_PAGES (take); capabilities are 4112 bytes.
  static constexpr std::uint32_t kMaxOutputLength = 64U << 10;

  CommandQueue(DmaSpace& dma, CommandExecutor& executor) : dma_(dma), executor_(executor) {}

  /// Where the driver put the queue; page aligned. Commands in flight are forgotten.
  void set_address(std::uint64_t iova);
  void disable();
  bool enabled() const { return enabled_; }

  /// A write to the doorbell vector: a bit per slot.
  void ring(std::uint32_t vector);

  /// Signatures are checked and made (capability cmdif_checksum).
  void set_checksums(bool on) { checksums_ = on; }

  /// False: step() would do nothing.
  bool has_work() const { return !order_.empty(); }
  /// Runs commands for about `blocks` mailbox blocks of work. True if work is left that can go on
  /// at once.
  bool step(unsigned blocks);

  /// Slots that the device owns, for status.
  std::uint32_t in_flight() const { return owned_; }

 private:
  enum class Phase : std::uint8_t {
    idle,
    fetch_entry,
    fetch_input,
    fetch_output_chain,
    execute,
    write_back
  };
  enum class Progress : std::uint8_t { done, more, parked };

  struct Slot {
    Phase phase = Phase::idle;
    std::array<std::uint8_t, prm::CommandQueueEntry::size> entry{};
    std::vector<std::uint8_t> in;
    std::vector<std::uint8_t> out;
    std::vector<std::uint64_t> out_blocks;
    std::uint64_t next_block = 0;
    std::uint32_t blocks_done = 0;
    prm::CommandDeliveryStatus delivery = prm::CommandDeliveryStatus::ok;
    bool by_event = false;
  };

  Progress advance(unsigned index, unsigned& blocks);
  Progress fetch_entry(unsigned index);
  Progress fetch_input(Slot& slot, unsigned& blocks);
  Progress fetch_output_chain(Slot& slot, unsigned& blocks);
  Progress write_back(unsigned index, unsigned& blocks);
  Progress write_block(Slot& slot, std::uint32_t number);
  Progress hand_back(unsigned index);
  /// Reads and checks block `number` of a chain; the status is that of the delivery.
  DmaStatus read_block(const Slot& slot, std::uint32_t number,
                       prm::CommandDeliveryStatus bad_pointer,
                       prm::CommandDeliveryStatus& delivery);
  void execute(Slot& slot);
  void refuse(Slot& slot, prm::CommandDeliveryStatus status);
  void lose();
  std::uint64_t entry_address(unsigned index) const {
    return address_ + (std::uint64_t{index} << kLogStride);
  }

  DmaSpace& dma_;
  CommandExecutor& executor_;
  std::uint64_t address_ = 0;
  bool enabled_ = false;
  bool checksums_ = false;
  std::uint32_t owned_ = 0;
  std::deque<unsigned> order_;
  std::array<Slot, kSlots> slots_;
  std::array<std::uint8_t, prm::CommandMailbox::size> block_{};
};

}  // namespace softhca
