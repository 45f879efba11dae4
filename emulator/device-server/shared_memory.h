// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "emulator/vfio-user/file_descriptor.h"

namespace softhca::emulator {

/// Owns an mmap()ed range.
class Mapping {
 public:
  Mapping() = default;
  Mapping(std::byte* base, std::size_t size) : base_(base), size_(size) {}
  Mapping(Mapping&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(size_, other.size_);
    return *this;
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  std::byte* base() const { return base_; }
  std::size_t size() const { return size_; }

 private:
  std::byte* base_ = nullptr;
  std::size_t size_ = 0;
};

/// Zeroed memory that is handed to drivers as a descriptor of fixed size (sealed memfd).
class SharedMemory {
 public:
  /// `name` shows up in /proc/*/maps. Throws std::system_error.
  SharedMemory(const char* name, std::size_t size);

  int fd() const { return fd_.get(); }
  std::byte* base() const { return mapping_.base(); }
  std::size_t size() const { return mapping_.size(); }

 private:
  vfio_user::FileDescriptor fd_;
  Mapping mapping_;
};

}  // namespace softhca::emulator
