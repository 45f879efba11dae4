// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "emulator/runtime/unique_fd.h"

namespace softhca::shim {

/// The daemon's single epoll loop: descriptors, one-shot timers, deferred calls. Everything may be
/// added and removed from inside handlers. Not thread-safe.
class EventLoop {
 public:
  using Handler =
      std::function<void(std::uint32_t events)>;  ///< EPOLLIN, EPOLLOUT, EPOLLERR, EPOLLHUP.
  using Clock = std::chrono::steady_clock;

  EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  /// Watches `fd` (level-triggered) until remove(); `events` may be 0 (only errors and hang-up).
  void watch(int fd, std::uint32_t events, Handler handler);
  void change(int fd, std::uint32_t events);
  /// Forgets `fd`; events already fetched for it are dropped. Call before closing it.
  void remove(int fd);

  /// Calls `action` once, after `delay`. The number cancels it.
  std::uint64_t after(std::chrono::milliseconds delay, std::function<void()> action);
  void cancel(std::uint64_t timer);

  /// Until stop().
  void run();
  /// Waits at most `timeout` for events and handles one round of them.
  void run_once(std::chrono::milliseconds timeout);
  void stop() { stopped_ = true; }

 private:
  struct Watch {
    int fd = -1;
    Handler handler;
  };
  struct Timer {
    Clock::time_point when;
    std::function<void()> action;
  };

  int poll_timeout(std::chrono::milliseconds limit) const;
  void run_timers();

  runtime::UniqueFd epoll_;
  std::map<std::uint64_t, std::shared_ptr<Watch>> watches_;  ///< By number, which epoll hands back.
  std::map<int, std::uint64_t> numbers_;                     ///< By descriptor.
  std::map<std::uint64_t, Timer> timers_;
  std::uint64_t next_number_ = 1;
  bool stopped_ = false;
};

}  // namespace softhca::shim
