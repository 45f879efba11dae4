// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "hw-model/memory/dma_space.h"

namespace softhca::test {

/// Memory of a test's host, mapped for a device as one range. A bump allocator hands out I/O
/// virtual addresses; nothing is ever freed. Not for several threads at once.
class GuestMemory {
 public:
  static constexpr std::uint64_t kPage = 4096;
  /// `shared`: a sealed memfd, for a device that is reached through a socket.
  enum class Kind : std::uint8_t { ordinary, shared };

  /// `size`: bytes, rounded up to pages; `iova`: where the device sees it, page aligned.
  explicit GuestMemory(std::uint64_t size = 64ULL << 20, std::uint64_t iova = 0x100000000ULL,
                       Kind kind = Kind::ordinary);
  ~GuestMemory();
  GuestMemory(const GuestMemory&) = delete;
  GuestMemory& operator=(const GuestMemory&) = delete;

  void map_into(DmaSpace& dma) const;
  int fd() const { return fd_; }  ///< -1 unless shared.

  /// Zeroed memory; throws std::bad_alloc when it is used up. `alignment`: a power of two.
  std::uint64_t allocate(std::uint64_t size, std::uint64_t alignment = kPage);

  /// Host pointer of an address handed out here.
  std::byte* at(std::uint64_t iova) const { return base_ + (iova - iova_); }
  template <typename T>
  T* as(std::uint64_t iova) const {
    return reinterpret_cast<T*>(at(iova));
  }
  std::uint8_t* bytes(std::uint64_t iova) const { return as<std::uint8_t>(iova); }
  std::uint64_t iova() const { return iova_; }
  std::uint64_t size() const { return size_; }

 private:
  std::uint64_t size_;
  std::uint64_t iova_;
  int fd_ = -1;
  std::byte* base_;
  std::uint64_t used_ = 0;
};

}  // namespace softhca::test
