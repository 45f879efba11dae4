// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "provider/queue_lock.h"

namespace softhca::provider {

/// One doorbell page of a context, allocated from the kernel and mapped. Send doorbells alternate
/// between the two halves of its first BlueFlame register.
class Uar {
 public:
  enum class Kind : std::uint8_t {
    write_combining,  ///< BlueFlame copies are useful.
    uncached,         ///< Plain 8-byte stores only.
  };

  /// Null with errno when the kernel refuses. `half` is half of bf_reg_size, 0 without BlueFlame.
  static std::unique_ptr<Uar> create(int command_fd, Kind kind, std::uint32_t half);
  /// A page of the caller's memory in place of a device's (tests).
  static std::unique_ptr<Uar> over(std::uint8_t* page, Kind kind, std::uint32_t half);
  Uar(const Uar&) = delete;
  Uar& operator=(const Uar&) = delete;
  ~Uar();

  std::uint32_t page_id() const { return page_id_; }
  std::uint8_t* page() const { return page_; }
  bool blue_flame() const { return kind_ == Kind::write_combining && half_ != 0; }
  std::uint32_t half() const { return half_; }

  /// Register for the next send doorbell.
  std::uint8_t* send_register() const;
  void flip() { offset_ ^= half_; }

  /// Held while a write-combining register is written and flushed; not needed by a page with one
  /// user.
  QueueLock lock;
  unsigned users = 0;  ///< QPs; guarded by the context.

 private:
  Uar() = default;

  int command_fd_ = -1;
  std::uint32_t handle_ = 0;
  std::uint32_t page_id_ = 0;
  std::uint8_t* page_ = nullptr;
  std::size_t length_ = 0;  ///< 0: the page is the caller's.
  Kind kind_ = Kind::uncached;
  std::uint32_t half_ = 0;
  std::uint32_t offset_ = 0;
};

}  // namespace softhca::provider
