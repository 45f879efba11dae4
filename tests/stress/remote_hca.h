// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "emulator/vfio-user/client.h"
#include "hw-model/runtime/doorbell_hints.h"
#include "tests/support/mini_driver.h"
#include "tests/unit/engine/running_engine.h"

namespace softhca::test {

/// How a driver's doorbells reach the engine.
enum class Doorbells : std::uint8_t {
  trapped,  ///< Posted register writes, as QEMU sends them.
  mapped,   ///< Stores to UAR pages that the engine sweeps; EQs count as always armed.
  hinted,   ///< Marks in the hints region and its eventfd, as virtual hosts; EQ arms are trapped.
};

/// An HCA of a running engine that nobody else uses, brought up, with an eventfd per interrupt and
/// an active port. In the mode `hinted` no page is mapped, so that no sweep makes up for a lost
/// mark.
class RemoteHca final : Registers {
 public:
  RemoteHca(Doorbells mode, std::uint64_t memory_size, unsigned vectors);
  ~RemoteHca() override;
  RemoteHca(const RemoteHca&) = delete;
  RemoteHca& operator=(const RemoteHca&) = delete;

  MiniDriver& driver() { return driver_; }
  std::uint16_t lid() const { return lid_; }
  /// Send doorbells of a queue that the device was watching (mode `hinted`).
  std::uint64_t watched_rings() const { return watched_rings_; }
  int interrupt(unsigned vector) const { return interrupts_[vector].get(); }

 private:
  void read(std::uint64_t offset, std::span<std::byte> to) override;
  void write(std::uint64_t offset, std::span<const std::byte> from) override;
  void enable_bus_master() override;
  void map_uars();
  void map_hints();
  bool mark(std::uint64_t offset, std::span<const std::byte> from);
  static std::uint16_t wait_for_lid();

  RunningEngine engine_;
  std::unique_ptr<vfio_user::Client> device_;
  std::vector<runtime::UniqueFd> interrupts_;
  MiniDriver driver_;
  std::uint16_t lid_ = 0;
  std::byte* uars_ = nullptr;
  std::uint64_t uars_start_ = 0;
  std::uint64_t uars_size_ = 0;
  DoorbellHints* hints_ = nullptr;
  std::atomic<std::uint64_t> watched_rings_{0};
  vfio_user::FileDescriptor wake_;
};

}  // namespace softhca::test
