// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

namespace softhca::runtime {

/// Directs spdlog's default logger to stderr (a daemon's log file) with time, level and `name`. The
/// level is $SOFTHCA_LOG_LEVEL (trace, debug, info, warn, error, off), else info.
void set_up_logging(const std::string& name);

/// False if there is no such level.
bool set_log_level(const std::string& level);
std::string log_level();

/// Keeps what a guest causes from flooding the log: at most `burst` messages per `period`.
class LogLimit {
 public:
  using Clock = std::chrono::steady_clock;

  explicit LogLimit(std::uint32_t burst = 10, Clock::duration period = std::chrono::seconds(10))
      : burst_(burst), period_(period) {}

  /// True if one more message may be logged now.
  bool allow(Clock::time_point now = Clock::now());
  /// Messages withheld since the last call; for the next message that is allowed.
  std::uint64_t take_suppressed() { return std::exchange(suppressed_, 0); }

 private:
  std::uint32_t burst_;
  Clock::duration period_;
  Clock::time_point period_end_{};
  std::uint32_t used_ = 0;
  std::uint64_t suppressed_ = 0;
};

}  // namespace softhca::runtime
