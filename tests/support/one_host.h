// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include "hw-model/device/function.h"
#include "hw-model/fabric/fabric.h"
#include "tests/support/interrupt_recorder.h"
#include "tests/support/mini_driver.h"
#include "tests/support/virtual_time.h"

namespace softhca::test {

/// A device that nobody has brought up yet, on a fabric of its own, and a driver for it.
class OneHost {
 public:
  static constexpr std::uint64_t kGuid = 0x0002c90300000100;

  OneHost() : OneHost(FunctionConfig{.node_guid = kGuid}) {}
  explicit OneHost(const FunctionConfig& config)
      : fabric(clock),
        port(plug_in(fabric)),
        function(config, *port, clock, interrupts),
        driver(function) {
    fabric.connect("host", &function);
  }
  ~OneHost() { fabric.connect("host", nullptr); }

  void step() {
    fabric.step();
    function.step({});
  }

  VirtualClock clock;
  InterruptRecorder interrupts;
  fabric::Fabric fabric;
  ib::Port* port;
  Function function;
  MiniDriver driver;

 private:
  static ib::Port* plug_in(fabric::Fabric& fabric) {
    fabric::HostConfig config;
    config.name = "host";
    config.node_guid = kGuid;
    return fabric.attach(config);
  }
};

}  // namespace softhca::test
