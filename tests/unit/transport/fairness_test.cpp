// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>

#include "tests/support/transport_pair.h"

// Queue pairs share a port that takes fewer packets than they want to send.
namespace softhca::transport_test {
namespace {

/// Busy RC QPs of one host, and a port that takes `room` packets and is then full.
class NarrowPort : public ::testing::TestWithParam<std::tuple<unsigned, unsigned>> {
 protected:
  NarrowPort() : send_(std::move(pair.a.port.on_send)) {
    pair.a.port.on_send = [this](ib::PacketPtr packet) {
      sent[packet->bth.dest_qp] += packet->count;
      if (--room_ == 0) pair.a.port.is_ready = false;
      send_(std::move(packet));
    };
    for (unsigned i = 0; i < count(); ++i) {
      connections.emplace_back(pair, TestQpOptions{}, 10, [](TestQp& a, TestQp& b) {
        a.attributes.mtu = b.attributes.mtu = 1;
      });
      ConnectedQps& one = connections.back();
      for (unsigned message = 0; message < 4; ++message) {
        one.a.write_send({.opcode = prm::WqeOpcode::rdma_write,
                          .sges = {one.a_sge(0, 64 << 10)},
                          .remote_address = one.b_buffer,
                          .rkey = one.b_key});
      }
    }
    for (ConnectedQps& one : connections) one.a.ring();
  }
  static unsigned count() { return std::get<0>(GetParam()); }
  static unsigned room() { return std::get<1>(GetParam()); }

  void let_pass(unsigned packets) {
    room_ = packets;
    pair.a.port.is_ready = true;
    while (pair.a.transport.step(pair.budget)) {
    }
  }

  TransportPair pair{128 << 20};
  std::deque<ConnectedQps> connections;
  std::map<std::uint32_t, unsigned> sent;  ///< Packets, by destination QPN.

 private:
  std::function<void(ib::PacketPtr)> send_;
  unsigned room_ = 0;
};

TEST_P(NarrowPort, EveryQueuePairHasItsTurn) {
  // The largest turn is 64 packets: after two rounds of those everybody has sent.
  for (unsigned passed = 0; passed < 2 * 64 * count(); passed += room()) let_pass(room());
  ASSERT_EQ(sent.size(), count()) << "a queue pair was passed over";
  for (const auto& [qpn, packets] : sent) EXPECT_GE(packets, 32U) << qpn;
}

// As many queue pairs as one more or less than, and as, the turns that fill the port.
INSTANTIATE_TEST_SUITE_P(Room, NarrowPort,
                         ::testing::Combine(::testing::Values(2, 8, 9, 16, 17),
                                            ::testing::Values(1, 16, 64, 256, 512)));

}  // namespace
}  // namespace softhca::transport_test
