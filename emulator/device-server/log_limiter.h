// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "hw-model/runtime/clock.h"

namespace softhca::emulator {

/// Passes log lines on, at most kBurst per kPeriod: a client must not be able to flood the log.
/// What is left out is counted in the next line.
class LogLimiter {
 public:
  static constexpr unsigned kBurst = 20;
  static constexpr Nanoseconds kPeriod = 10'000'000'000;

  LogLimiter(std::function<void(const std::string&)> sink, const Clock& clock)
      : sink_(std::move(sink)), clock_(clock) {}

  void line(const std::string& text) {
    if (!sink_) return;
    const Nanoseconds now = clock_.now();
    if (lines_ == 0 || now - period_start_ >= kPeriod) {
      period_start_ = now;
      lines_ = 0;
    }
    if (lines_ >= kBurst) {
      ++omitted_;
      return;
    }
    ++lines_;
    const unsigned omitted = std::exchange(omitted_, 0);
    sink_(omitted == 0 ? text : text + " (" + std::to_string(omitted) + " lines left out)");
  }

 private:
  std::function<void(const std::string&)> sink_;
  const Clock& clock_;
  Nanoseconds period_start_ = 0;
  unsigned lines_ = 0;
  unsigned omitted_ = 0;
};

}  // namespace softhca::emulator
