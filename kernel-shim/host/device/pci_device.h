// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernel-shim/host/memory/iova_allocator.h"

namespace softhca::shim {

/// A piece of the device that an application may map.
struct MappableArea {
  int fd = -1;  ///< Borrowed.
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

/// The door to the PCI function: what the driver part needs of it, whoever provides it. Calls block
/// until the device has answered; errors are errno values, 0 for success. After ENODEV the device
/// is gone.
class PciDevice {
 public:
  virtual ~PciDevice() = default;

  virtual int bar_read(std::uint64_t offset, std::span<std::byte> to) = 0;
  /// `posted`: need not wait for the device; order with later calls is kept.
  virtual int bar_write(std::uint64_t offset, std::span<const std::byte> from, bool posted) = 0;

  /// Gives the device `size` bytes of `fd` from `offset` on at `iova`, for reading and (`writable`)
  /// writing.
  virtual int dma_map(std::uint64_t iova, std::uint64_t size, int fd, std::uint64_t offset,
                      bool writable) = 0;
  /// The same, but need not wait for the device: its answer comes from settle(). Writes of
  /// registers reach the device after the map.
  virtual int start_dma_map(std::uint64_t iova, std::uint64_t size, int fd, std::uint64_t offset,
                            bool writable) {
    return dma_map(iova, size, fd, offset, writable);
  }
  /// Sleeps until the maps that were started are done, one way or the other. False: the device is
  /// gone.
  virtual bool await_maps() { return true; }
  /// The same: 0, or the first error among them.
  virtual int settle() { return 0; }
  /// True if settle() would wait.
  virtual bool is_unsettled() const { return false; }
  /// After the return the device does not touch the range any more.
  virtual int dma_unmap(std::uint64_t iova, std::uint64_t size) = 0;
  /// First I/O virtual address that cannot be mapped.
  virtual std::uint64_t iova_end() const { return IovaAllocator::kLimit; }
  /// True if dma_map() takes shared memory (memfds) only, not an application's /proc/self/mem.
  virtual bool needs_shared_memory() const { return false; }

  /// Connects MSI-X vectors start, start + 1, ... to eventfds (borrowed).
  virtual int connect_interrupts(std::uint32_t start, std::span<const int> eventfds) = 0;
  virtual int disconnect_interrupts() = 0;

  /// Where `length` bytes of BAR0 from `offset` on may be mapped; fd -1 if they may not.
  virtual MappableArea bar_area(std::uint64_t offset, std::uint64_t length) = 0;
  /// The doorbell hints region (hw-model/runtime/doorbell_hints.h); fd -1 if there is none.
  virtual MappableArea hints_area() = 0;
  /// Eventfd that wakes the device's engine; -1 if there is none. Borrowed.
  virtual int wake_fd() = 0;

  /// Readable when serve() should be called.
  virtual int fd() = 0;
  /// Takes what the device sent by itself; ENODEV when it is gone.
  virtual int serve() = 0;
};

}  // namespace softhca::shim
