// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "hw-model/device/function.h"
#include "hw-model/fabric/fabric.h"
#include "tests/support/interrupt_recorder.h"
#include "tests/support/mini_driver.h"
#include "tests/support/virtual_time.h"

namespace softhca::test {

/// Two hosts, each with a device and a driver that has brought it up, on one fabric with virtual
/// time.
class TwoHosts {
 public:
  struct Host {
    Host(const std::string& name, TwoHosts& world, std::uint64_t guid, std::uint64_t memory);
    ib::Port* port;
    InterruptRecorder interrupts;
    Function function;
    MiniDriver driver;
    std::uint16_t lid() const { return port->attributes().lid; }
  };

  /// `memory`: bytes that the driver of each host has.
  explicit TwoHosts(std::uint64_t memory = 64ULL << 20);
  ~TwoHosts();

  /// One round of everything; when nothing is left to do, time moves to the next deadline.
  void step();
  /// Steps until `done`, at most `rounds` times; true if done.
  bool run_until(const std::function<bool()>& done, unsigned rounds = 200000);

  VirtualClock clock;
  fabric::Fabric fabric;
  std::unique_ptr<Host> a;
  std::unique_ptr<Host> b;
};

}  // namespace softhca::test
