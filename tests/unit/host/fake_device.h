// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cerrno>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "emulator/runtime/unique_fd.h"
#include "hw-model/prm/opcodes.h"
#include "kernel-shim/host/device/pci_device.h"

namespace softhca::shim::test {

/// A device whose firmware says yes: it takes commands from the queue in mapped memory, keeps the
/// numbers of what exists, and remembers what it was asked. Every command can be made to fail or to
/// stay unanswered.
class FakeDevice final : public PciDevice {
 public:
  using Bytes = std::vector<std::uint8_t>;

  FakeDevice();
  ~FakeDevice() override;

  // PciDevice
  int bar_read(std::uint64_t offset, std::span<std::byte> to) override;
  int bar_write(std::uint64_t offset, std::span<const std::byte> from, bool posted) override;
  int dma_map(std::uint64_t iova, std::uint64_t size, int fd, std::uint64_t offset,
              bool writable) override;
  int dma_unmap(std::uint64_t iova, std::uint64_t size) override;
  bool needs_shared_memory() const override { return shared_memory_only; }
  int connect_interrupts(std::uint32_t start, std::span<const int> eventfds) override;
  int disconnect_interrupts() override { return 0; }
  MappableArea bar_area(std::uint64_t offset, std::uint64_t length) override;
  MappableArea hints_area() override {
    return has_hints ? MappableArea{bar_.get(), 0, 4096} : MappableArea{};
  }
  int wake_fd() override { return -1; }
  int fd() override { return alive_[0].get(); }
  int serve() override { return gone ? ENODEV : 0; }

  /// Inputs of every command of this kind, in order.
  const std::vector<Bytes>& seen(prm::CommandOpcode opcode) { return seen_[opcode]; }
  std::size_t count(prm::CommandOpcode opcode) { return seen_[opcode].size(); }
  /// Objects made and not destroyed, by kind of their creation.
  std::size_t live(prm::CommandOpcode create) { return live_[create].size(); }
  std::size_t maps() const { return maps_.size(); }
  bool is_mapped(std::uint64_t iova) const;
  std::size_t pages() const { return pages_.size(); }

  /// Writes an event into event queue `eqn` and raises its interrupt.
  void post_event(std::uint32_t eqn, std::uint8_t type, std::uint8_t subtype,
                  const std::function<void(std::uint8_t* data)>& fill);
  /// Number of the queue that takes asynchronous events, and of the first for completions.
  std::uint32_t async_eqn() const { return 1; }
  std::uint32_t completion_eqn() const { return 2; }

  std::map<prm::CommandOpcode, std::uint8_t> fail_with;  ///< prm::CommandStatus.
  std::set<prm::CommandOpcode> unanswered;
  bool gone = false;
  bool has_hints = false;
  bool shared_memory_only = false;  ///< As behind VFIO.
  std::int32_t boot_pages = 3;
  std::int32_t init_pages = 5;
  std::map<std::uint64_t, std::uint32_t>
      registers;  ///< Words written outside of the command queue.

 private:
  struct Map {
    std::uint64_t size = 0;
    std::uint8_t* base = nullptr;  ///< Null if the descriptor cannot be mapped (/proc/self/mem).
  };
  struct Queue {
    std::vector<std::uint64_t> pages;
    unsigned log_size = 0;
    std::uint32_t producer = 0;
    std::uint32_t vector = 0;
  };

  std::uint8_t* at(std::uint64_t iova);
  void run_slot(unsigned slot);
  Bytes gather(std::uint64_t mailbox, const std::uint8_t* inlined, std::size_t length);
  void scatter(std::uint64_t mailbox, std::uint8_t* inlined, const Bytes& bytes);
  void execute(const Bytes& in, Bytes& out);
  void query_caps(Bytes& out);
  void query_register(const Bytes& in, Bytes& out);
  void manage_pages(const Bytes& in, Bytes& out);
  void create_eq(const Bytes& in, Bytes& out);

  runtime::UniqueFd alive_[2];
  runtime::UniqueFd bar_;
  std::uint64_t queue_ = 0;
  std::map<std::uint64_t, Map> maps_;
  std::map<std::uint32_t, int> vectors_;
  std::vector<Queue> eqs_;
  std::set<std::uint64_t> pages_;
  std::uint32_t next_number_ = 0x40;
  std::map<prm::CommandOpcode, std::vector<Bytes>> seen_;
  std::map<prm::CommandOpcode, std::set<std::uint32_t>> live_;
};

}  // namespace softhca::shim::test
