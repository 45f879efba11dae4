// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/engine/event_set.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <ctime>
#include <system_error>

namespace softhca::emulator {
namespace {

constexpr Nanoseconds kSecond = 1'000'000'000;
constexpr Nanoseconds kMillisecond = 1'000'000;

int in_milliseconds(Nanoseconds timeout) {
  if (timeout == kNever) return -1;
  return static_cast<int>(
      std::min<Nanoseconds>((timeout + kMillisecond - 1) / kMillisecond, INT_MAX));
}

}  // namespace

EventSet::EventSet() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_) throw std::system_error(errno, std::generic_category(), "epoll_create1");
}

void EventSet::add(int fd, std::uint64_t key) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = key;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    throw std::system_error(errno, std::generic_category(), "epoll_ctl");
  }
}

int EventSet::wait_raw(Nanoseconds timeout) {
  // epoll_wait() knows only milliseconds; epoll_pwait2() is missing before Linux 5.11 and in some
  // seccomp profiles.
  if (timeout != 0 && timeout != kNever && has_pwait2_) {
    const timespec time{static_cast<time_t>(timeout / kSecond),
                        static_cast<long>(timeout % kSecond)};
    const int count = ::epoll_pwait2(epoll_.get(), events_.data(), kMaxEvents, &time, nullptr);
    if (count >= 0 || (errno != ENOSYS && errno != EPERM)) return count;
    has_pwait2_ = false;
  }
  return ::epoll_wait(epoll_.get(), events_.data(), kMaxEvents, in_milliseconds(timeout));
}

std::span<const std::uint64_t> EventSet::wait(Nanoseconds timeout) {
  const int count = std::max(wait_raw(timeout), 0);
  for (int i = 0; i < count; ++i) keys_[i] = events_[i].data.u64;
  return {keys_.data(), static_cast<std::size_t>(count)};
}

}  // namespace softhca::emulator
