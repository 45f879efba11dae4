// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include <sys/epoll.h>

#include "emulator/runtime/unique_fd.h"
#include "hw-model/runtime/clock.h"

namespace softhca::emulator {

/// What the engine sleeps on: an epoll set whose members are told apart by a number.
class EventSet {
 public:
  /// Throws std::system_error if descriptors run out.
  EventSet();

  /// Watches `fd` for input, until it is closed. Throws std::system_error.
  void add(int fd, std::uint64_t key);

  /// The set, for who adds members itself; keys of this set and theirs must differ.
  int fd() const { return epoll_.get(); }

  /// Keys of members with input, after waiting at most `timeout` (0: not at all; kNever: without
  /// end). The span is valid until the next call.
  std::span<const std::uint64_t> wait(Nanoseconds timeout);

 private:
  int wait_raw(Nanoseconds timeout);

  static constexpr int kMaxEvents = 64;
  runtime::UniqueFd epoll_;
  std::array<epoll_event, kMaxEvents> events_;
  std::array<std::uint64_t, kMaxEvents> keys_;
  bool has_pwait2_ = true;
};

}  // namespace softhca::emulator
