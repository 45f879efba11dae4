// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hw-model/memory/dma_space.h"
#include "hw-model/runtime/clock.h"
#include "tests/property/random.h"

namespace softhca::property {

/// Memory that now and then is not there yet: accesses return `pending` at random, and the host
/// must call memory_arrived() later. Serves as the backing of a DmaSpace range.
class SlowMemory final : public DmaBacking {
 public:
  SlowMemory(std::byte* base, std::size_t size, Random random, unsigned pending_per_mille);

  DmaStatus read(std::uint64_t offset, void* to, std::size_t length) override;
  DmaStatus write(std::uint64_t offset, const void* from, std::size_t length) override;

  /// True once after an access had to wait.
  bool take_waiting();
  void set_pending(unsigned per_mille) { pending_per_mille_ = per_mille; }

 private:
  bool is_late();

  std::byte* base_;
  std::size_t size_;
  Random random_;
  unsigned pending_per_mille_;
  bool waiting_ = false;
};

/// The registered memory of a host: pages scattered over the I/O address space, seen through one
/// memory key at consecutive virtual addresses. Holds random bytes at first.
class HostMemory {
 public:
  static constexpr std::uint64_t kPage = 4096;
  static constexpr std::uint64_t kVa = 0x7f1200000000ULL;
  static constexpr std::uint64_t kIova = 0x4000000000ULL;

  HostMemory(std::size_t pages, Random random);

  std::byte* storage() { return storage_.data(); }
  std::size_t size() const { return storage_.size(); }
  /// I/O virtual addresses of the pages, in order of virtual address.
  std::vector<std::uint64_t> pages() const;

  /// Virtual address of `length` bytes, with bytes that belong to nobody before and after. 0: used
  /// up.
  std::uint64_t allocate(const char* purpose, std::uint64_t length, std::uint64_t alignment = 1);
  /// What the byte at `va` was allocated for.
  std::string purpose_of(std::uint64_t va) const;
  std::uint64_t left() const { return storage_.size() - used_; }

  void read(std::uint64_t va, std::span<std::uint8_t> to) const;
  void write(std::uint64_t va, std::span<const std::uint8_t> from);
  std::vector<std::uint8_t> bytes(std::uint64_t va, std::uint64_t length) const;

 private:
  const std::byte* at(std::uint64_t va) const;

  std::vector<std::byte> storage_;
  std::vector<std::uint32_t> page_at_;  ///< Storage page of each virtual page.
  std::uint64_t used_ = 64;
  struct Allocation {
    std::uint64_t va;
    std::uint64_t length;
    const char* purpose;
  };
  std::vector<Allocation> allocations_;
};

}  // namespace softhca::property
