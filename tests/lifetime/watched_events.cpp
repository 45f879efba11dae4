// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/lifetime/watched_events.h"

#include <poll.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace softhca::lifetime {
namespace {

constexpr int kLookEveryMs = 20;

void say(const char* what, const char* detail) {
  std::printf("%s %s\n", what, detail);
  std::fflush(stdout);
}

}  // namespace

WatchedEvents::WatchedEvents(ibv_context* context)
    : context_(context), thread_([this] { watch(); }) {}

WatchedEvents::~WatchedEvents() {
  ends_ = true;
  thread_.join();
}

void WatchedEvents::watch() {
  while (!ends_) {
    pollfd readable{context_->async_fd, POLLIN, 0};
    if (::poll(&readable, 1, kLookEveryMs) <= 0) continue;
    ibv_async_event event{};
    if (ibv_get_async_event(context_, &event) != 0) {
      say("events ended:", std::strerror(errno));
      device_lost_ = true;
      return;
    }
    say("event", ibv_event_type_str(event.event_type));
    const bool fatal = event.event_type == IBV_EVENT_DEVICE_FATAL;
    ibv_ack_async_event(&event);
    if (fatal) device_lost_ = true;
  }
}

}  // namespace softhca::lifetime
