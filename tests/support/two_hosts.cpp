// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/support/two_hosts.h"

#include <algorithm>

namespace softhca::test {
namespace {

ib::Port* plug_in(fabric::Fabric& fabric, const std::string& name, std::uint64_t guid) {
  fabric::HostConfig config;
  config.name = name;
  config.node_guid = guid;
  ib::Port* port = fabric.attach(config);
  if (port == nullptr) throw DriverError("the fabric refuses " + name);
  return port;
}

FunctionConfig function_config(std::uint64_t guid) {
  FunctionConfig config;
  config.node_guid = guid;
  return config;
}

}  // namespace

TwoHosts::Host::Host(const std::string& name, TwoHosts& world, std::uint64_t guid,
                     std::uint64_t memory)
    : port(plug_in(world.fabric, name, guid)),
      function(function_config(guid), *port, world.clock, interrupts),
      driver(function, memory, [&world] { world.step(); }) {
  world.fabric.connect(name, &function);
}

TwoHosts::TwoHosts(std::uint64_t memory) : fabric(clock) {
  a = std::make_unique<Host>("a", *this, 0x0002c90300000a00, memory);
  b = std::make_unique<Host>("b", *this, 0x0002c90300000b00, memory);
  a->driver.bring_up();
  b->driver.bring_up();
}

TwoHosts::~TwoHosts() {
  fabric.connect("a", nullptr);
  fabric.connect("b", nullptr);
}

void TwoHosts::step() {
  static constexpr StepBudget kBudget;
  bool busy = fabric.step();
  // One may be missing while the world is made.
  if (a != nullptr) busy |= a->function.step(kBudget);
  if (b != nullptr) busy |= b->function.step(kBudget);
  if (busy) return;
  // Only now are all deadlines known: the last step may have put a packet on a link.
  Nanoseconds deadline = fabric.next_deadline();
  for (Host* host : {a.get(), b.get()}) {
    if (host != nullptr) deadline = std::min(deadline, host->function.next_deadline());
  }
  if (deadline != kNever) clock.advance_to(deadline);
}

bool TwoHosts::run_until(const std::function<bool()>& done, unsigned rounds) {
  for (unsigned i = 0; i < rounds; ++i) {
    if (done()) return true;
    step();
  }
  return done();
}

}  // namespace softhca::test
