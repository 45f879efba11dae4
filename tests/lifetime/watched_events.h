// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <thread>

namespace softhca::lifetime {

/// Reads the asynchronous events of a context in a thread of its own and prints each as
/// "event <name>"; knows whether the device was lost.
class WatchedEvents {
 public:
  explicit WatchedEvents(ibv_context* context);
  ~WatchedEvents();
  WatchedEvents(const WatchedEvents&) = delete;
  WatchedEvents& operator=(const WatchedEvents&) = delete;

  /// IBV_EVENT_DEVICE_FATAL came, or events can no longer be read.
  bool device_lost() const { return device_lost_; }

 private:
  void watch();

  ibv_context* context_;
  std::atomic<bool> device_lost_{false};
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

}  // namespace softhca::lifetime
