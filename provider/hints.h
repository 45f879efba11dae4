// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <atomic>
#include <cstdint>

#include "hw-model/runtime/doorbell_hints.h"

namespace softhca::provider {

/// The doorbell hints of a context on a virtual host; inactive on a real kernel, which does not
/// offer them. A marked number tells a polling or sleeping engine which doorbell record to look at.
class Hints {
 public:
  Hints() = default;
  Hints(const Hints&) = delete;
  Hints& operator=(const Hints&) = delete;
  ~Hints() { close(); }

  /// Asks the kernel side behind `command_fd`; leaves the object inactive when it refuses.
  void open(int command_fd);
  /// Uses memory and descriptor of the caller (tests).
  void adopt(DoorbellHints* map, int wake_fd);
  void close();

  bool active() const { return map_ != nullptr; }
  /// Null when inactive. Who marks in it by himself calls wake_if_asleep() then.
  DoorbellHints* map() const { return map_; }
  /// DoorbellHints::engine_processor.
  std::uint32_t engine_processor() const {
    return map_ == nullptr ? 0 : map_->engine_processor.load(std::memory_order_relaxed);
  }
  /// After the doorbell of the SQ of `qpn` was rung.
  void send_rung(std::uint32_t qpn) {
    if (map_ == nullptr) return;
    map_->ring_sq(map_->sq.place_of(qpn));
    wake_if_asleep();
  }
  /// After the CQ was armed.
  void cq_armed(std::uint32_t cqn) {
    if (map_ == nullptr) return;
    map_->cq_arm.mark(cqn);
    wake_if_asleep();
  }
  void wake_if_asleep() {
    if (map_->must_wake()) wake();
  }

 private:
  void wake();

  DoorbellHints* map_ = nullptr;
  std::uint64_t length_ = 0;  ///< 0: memory is the caller's.
  /// Guarded against the application where the preload library is loaded, which may renumber it.
  std::atomic<int> wake_fd_{-1};
};

}  // namespace softhca::provider
