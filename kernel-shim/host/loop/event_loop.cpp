// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/host/loop/event_loop.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

namespace softhca::shim {

EventLoop::EventLoop() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_) throw std::system_error(errno, std::generic_category(), "epoll_create1");
}

void EventLoop::watch(int fd, std::uint32_t events, Handler handler) {
  remove(fd);
  const std::uint64_t number = next_number_++;
  epoll_event event{};
  event.events = events;
  event.data.u64 = number;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    throw std::system_error(errno, std::generic_category(), "epoll_ctl(ADD)");
  }
  watches_[number] = std::make_shared<Watch>(Watch{fd, std::move(handler)});
  numbers_[fd] = number;
}

void EventLoop::change(int fd, std::uint32_t events) {
  const auto found = numbers_.find(fd);
  if (found == numbers_.end()) return;
  epoll_event event{};
  event.events = events;
  event.data.u64 = found->second;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void EventLoop::remove(int fd) {
  const auto found = numbers_.find(fd);
  if (found == numbers_.end()) return;
  watches_.erase(found->second);
  numbers_.erase(found);
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

std::uint64_t EventLoop::after(std::chrono::milliseconds delay, std::function<void()> action) {
  const std::uint64_t number = next_number_++;
  timers_[number] = Timer{Clock::now() + delay, std::move(action)};
  return number;
}

void EventLoop::cancel(std::uint64_t timer) {
  timers_.erase(timer);
}

int EventLoop::poll_timeout(std::chrono::milliseconds limit) const {
  Clock::duration wait = limit;
  const Clock::time_point now = Clock::now();
  for (const auto& [number, timer] : timers_) {
    wait = std::min<Clock::duration>(wait, timer.when > now ? timer.when - now : Clock::duration{});
  }
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(wait).count());
}

void EventLoop::run_timers() {
  const Clock::time_point now = Clock::now();
  for (auto next = timers_.begin(); next != timers_.end();) {
    if (next->second.when > now) {
      ++next;
      continue;
    }
    const std::function<void()> action = std::move(next->second.action);
    timers_.erase(next);
    action();
    next = timers_.begin();  // The action may have changed the table.
  }
}

void EventLoop::run_once(std::chrono::milliseconds timeout) {
  epoll_event ready[64];
  const int count = ::epoll_wait(epoll_.get(), ready, 64, poll_timeout(timeout));
  for (int i = 0; i < count; ++i) {
    const std::uint64_t number = ready[i].data.u64;  // A copy: epoll_event is packed.
    const auto found = watches_.find(number);
    if (found == watches_.end()) continue;
    const std::shared_ptr<Watch> alive = found->second;  // It may remove itself.
    alive->handler(ready[i].events);
  }
  run_timers();
}

void EventLoop::run() {
  while (!stopped_) run_once(std::chrono::milliseconds(60'000));
}

}  // namespace softhca::shim
