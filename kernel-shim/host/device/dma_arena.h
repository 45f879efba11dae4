// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "emulator/runtime/unique_fd.h"
#include "kernel-shim/host/device/pci_device.h"
#include "kernel-shim/host/memory/iova_allocator.h"

namespace softhca::shim {

/// Memory of the daemon's own that the device reaches: command queue, mailboxes, event queues,
/// firmware pages. Sealed memfds, mapped in pieces of kChunk bytes as they are needed. Everything
/// is page granular.
class DmaArena {
 public:
  static constexpr std::size_t kPage = 4096;
  static constexpr std::size_t kChunk = 4 << 20;

  struct Block {
    std::uint8_t* data = nullptr;  ///< Zeroed at allocation.
    std::uint64_t iova = 0;
    std::size_t size = 0;
  };

  DmaArena(PciDevice& device, IovaAllocator& iovas) : device_(device), iovas_(iovas) {}
  ~DmaArena();
  DmaArena(const DmaArena&) = delete;
  DmaArena& operator=(const DmaArena&) = delete;

  /// Contiguous, page-aligned; `size` is rounded up to pages, at most kChunk. Empty: no memory, or
  /// the device refused the mapping.
  std::optional<Block> allocate(std::size_t size);
  void release(const Block& block);

 private:
  struct Chunk {
    runtime::UniqueFd fd;
    std::uint8_t* base = nullptr;
    std::uint64_t iova = 0;
    std::vector<bool> used;  ///< By page.
  };

  std::optional<Block> allocate_in(Chunk& chunk, std::size_t pages);
  bool add_chunk();

  PciDevice& device_;
  IovaAllocator& iovas_;
  std::vector<std::unique_ptr<Chunk>> chunks_;
};

}  // namespace softhca::shim
