// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "emulator/runtime/unique_fd.h"
#include "hw-model/runtime/clock.h"

namespace softhca::emulator {

/// One emulator process's engine: a single thread that runs all devices of a fabric.
///
/// While there is work, or was a moment ago, it passes over the devices and the fabric again and
/// again, and looks at its sockets at a bounded interval (a driver must have its reply within 5 s,
/// and gets it within microseconds). After a bounded idle time, in which it yields the processor
/// between passes, it arms the doorbells (kEngineSleeping in every DoorbellHints), looks once more,
/// and sleeps until a doorbell, a socket or the next deadline wakes it.
class Engine {
 public:
  struct Options {
    std::string fabric = "default";
    Nanoseconds idle_spin = 50'000;
    /// End when the last device has gone, or the first does not come; else only by stop().
    bool end_when_unused = false;
    Nanoseconds first_attach_timeout = 10'000'000'000;
    Nanoseconds linger = 500'000'000;  ///< From the last device's end.
  };

  /// `control`: the listening control socket. Blocks SIGTERM and SIGINT in this thread: they end
  /// run(). Throws std::system_error if descriptors run out.
  Engine(Options options, runtime::UniqueFd control);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Runs until stop(), a signal, or by its own rules.
  void run();
  /// From within run() (a control command).
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace softhca::emulator
