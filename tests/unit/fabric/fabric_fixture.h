// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "hw-model/fabric/fabric.h"
#include "hw-model/ib/opcodes.h"
#include "tests/support/virtual_time.h"

namespace softhca::fabric {

using softhca::test::VirtualClock;

/// A host that remembers what it was given.
class RecordingHost final : public ib::PortClient {
 public:
  void receive(ib::Packet& packet) override {
    packets.push_back(std::make_unique<ib::Packet>(std::move(packet)));
  }
  void port_ready() override { ++ready_notices; }
  void port_event(ib::PortEvent event) override { events.push_back(event); }
  bool owns_special_qp(std::uint32_t) const override { return owns_special; }

  std::vector<ib::PacketPtr> packets;
  std::vector<ib::PortEvent> events;
  unsigned ready_notices = 0;
  bool owns_special = false;
};

/// A fabric with hosts "a" (GUID 0xa) and "b" (GUID 0xb), their first events already taken.
class FabricTest : public testing::Test {
 protected:
  FabricTest() {
    port_a = plug("a", 0xa, a);
    port_b = plug("b", 0xb, b);
    settle();
    a.events.clear();
    b.events.clear();
  }

  ib::Port* plug(const std::string& name, std::uint64_t guid, ib::PortClient& client) {
    HostConfig config;
    config.name = name;
    config.node_guid = guid;
    ib::Port* port = fabric.attach(config);
    if (port != nullptr) fabric.connect(name, &client);
    return port;
  }

  /// Steps until nothing more is due now.
  void settle() {
    for (int rounds = 0; fabric.step(); ++rounds) ASSERT_LT(rounds, 100000) << "never idle";
  }

  /// Lets time pass, from deadline to deadline.
  void run_for(Nanoseconds time) {
    const Nanoseconds end = clock.now() + time;
    settle();
    while (fabric.next_deadline() <= end) {
      clock.set(std::max(clock.now(), fabric.next_deadline()));
      settle();
    }
    clock.set(end);
    settle();
  }

  /// A UC SEND to `to`, told apart by its PSN.
  static ib::PacketPtr packet_to(std::uint16_t dlid, std::uint32_t psn, std::size_t payload = 8) {
    auto packet = std::make_unique<ib::Packet>();
    packet->path.dlid = dlid;
    packet->bth.opcode = ib::make_opcode(ib::Service::uc, ib::Operation::send_only);
    packet->bth.dest_qp = 0x40;
    packet->bth.psn = psn;
    packet->payload.resize(payload, std::byte{0x5a});
    return packet;
  }

  static std::vector<std::uint32_t> psns(const RecordingHost& host) {
    std::vector<std::uint32_t> result;
    for (const auto& packet : host.packets) result.push_back(packet->bth.psn);
    return result;
  }

  VirtualClock clock;
  Fabric fabric{clock};
  RecordingHost a;
  RecordingHost b;
  ib::Port* port_a = nullptr;
  ib::Port* port_b = nullptr;
};

}  // namespace softhca::fabric
