// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/transport_pair.h"

// Packets that travel as trains and refer to registered memory.
namespace softhca::transport_test {
namespace {

using prm::CqeSyndrome;
using prm::WqeOpcode;

class Trains : public ::testing::Test {
 protected:
  static constexpr std::size_t kSize = 100'000;

  Trains() {
    pair.a.port.has_trains = true;
    pair.b.port.has_trains = true;
    pair.on_delivery = [this](const ib::Packet& packet) {
      longest = std::max<unsigned>(longest, packet.count);
    };
  }
  Completion wait(TestCq& cq) {
    std::optional<Completion> completion;
    EXPECT_TRUE(pair.run_until([&] { return (completion = cq.poll()).has_value(); }))
        << "no completion came";
    return completion.value_or(Completion{});
  }
  std::vector<std::byte> fill(TestHost& host, std::uint64_t buffer, unsigned seed) {
    auto data = TestHost::pattern(kSize, seed);
    host.fill(buffer, data);
    return data;
  }
  static bool holds(TestHost& host, std::uint64_t buffer, std::span<const std::byte> data) {
    const auto memory = host.bytes(buffer, data.size());
    return std::equal(data.begin(), data.end(), memory.begin());
  }
  void post_write() {
    qps.a.post_send({.opcode = WqeOpcode::rdma_write,
                     .sges = {qps.a_sge(0, kSize)},
                     .remote_address = qps.b_buffer,
                     .rkey = qps.b_key});
  }
  void post_read() {
    qps.a.post_send({.opcode = WqeOpcode::rdma_read,
                     .sges = {qps.a_sge(0, kSize)},
                     .remote_address = qps.b_buffer,
                     .rkey = qps.b_key});
  }
  /// Trains stay on the wire for a while.
  void hold_trains() {
    pair.fate = [](ib::Packet& packet) {
      return PacketFate{.extra_delay = packet.count > 1 ? kHeld / 2 : 0};
    };
  }

  static constexpr Nanoseconds kHeld = 1'000'000;
  TransportPair pair;
  ConnectedQps qps{pair};
  unsigned longest = 0;
};

TEST_F(Trains, CarryWritesAndReads) {
  const auto data = fill(pair.a, qps.a_buffer, 1);
  post_write();
  EXPECT_TRUE(wait(qps.a_cq).ok());
  EXPECT_TRUE(holds(pair.b, qps.b_buffer, data));
  EXPECT_GT(longest, 1U);
  longest = 0;
  const auto other = fill(pair.b, qps.b_buffer, 2);
  post_read();
  EXPECT_TRUE(wait(qps.a_cq).ok());
  EXPECT_TRUE(holds(pair.a, qps.a_buffer, other));
  EXPECT_GT(longest, 1U);
}

TEST_F(Trains, ThatComeTwiceAreDuplicatesEachPacketOfThem) {
  const auto data = fill(pair.a, qps.a_buffer, 1);
  pair.fate = [](ib::Packet&) { return PacketFate{.copies = 2}; };
  post_write();
  EXPECT_TRUE(wait(qps.a_cq).ok());
  pair.run();
  EXPECT_TRUE(holds(pair.b, qps.b_buffer, data));
  EXPECT_FALSE(qps.a_cq.poll().has_value());
}

TEST_F(Trains, ThatAreLostAreSentAgain) {
  const auto data = fill(pair.a, qps.a_buffer, 1);
  unsigned seen = 0;
  pair.fate = [&seen](ib::Packet& packet) {
    return PacketFate{.drop = packet.count > 1 && ++seen == 2};
  };
  post_write();
  EXPECT_TRUE(wait(qps.a_cq).ok());
  EXPECT_TRUE(holds(pair.b, qps.b_buffer, data));
  EXPECT_GE(seen, 3U);
}

TEST_F(Trains, LongerThanTheReceiveBufferFailAsPacketsDo) {
  fill(pair.a, qps.a_buffer, 1);
  qps.b.post_recv({qps.b_sge(0, 20'000)});
  qps.a.post_send({.sges = {qps.a_sge(0, kSize)}});
  EXPECT_EQ(wait(qps.b_cq).syndrome, CqeSyndrome::local_length);
  EXPECT_EQ(wait(qps.a_cq).syndrome, CqeSyndrome::remote_invalid_request);
}

/// What is on its way when the sender's memory goes away stays what it was.
TEST_F(Trains, OnTheirWayKeepTheirBytesWhenTheKeyGoes) {
  const auto data = fill(pair.b, qps.b_buffer, 1);
  hold_trains();
  post_read();
  pair.run_for(10 * TransportPair::kLatency);
  ASSERT_GT(pair.in_flight(), 0U);
  ASSERT_TRUE(pair.b.mkeys.destroy(qps.b_key >> 8));
  std::ranges::fill(pair.b.bytes(qps.b_buffer, kSize), std::byte{0});
  pair.run_for(kHeld);
  EXPECT_TRUE(holds(pair.a, qps.a_buffer, std::span(data).first(4096)));
}

TEST_F(Trains, OnTheirWayKeepTheirBytesWhenTheMemoryIsUnmapped) {
  const auto data = fill(pair.a, qps.a_buffer, 1);
  hold_trains();
  post_write();
  pair.run_for(10 * TransportPair::kLatency);
  ASSERT_GT(pair.in_flight(), 0U);
  const std::span<std::byte> memory = pair.a.bytes(qps.a_buffer, kSize);
  pair.a.dma.clear();
  std::ranges::fill(memory, std::byte{0});
  pair.run_for(kHeld);
  EXPECT_TRUE(holds(pair.b, qps.b_buffer, std::span(data).first(4096)));
}

TEST_F(Trains, OnTheirWayKeepTheirBytesWhenTheQueuePairGoes) {
  const auto data = fill(pair.a, qps.a_buffer, 1);
  hold_trains();
  post_write();
  pair.run_for(10 * TransportPair::kLatency);
  ASSERT_GT(pair.in_flight(), 0U);
  ASSERT_EQ(pair.a.transport.modify_qp(qps.a.number(), QpTransition::to_error, {}, 0),
            ModifyResult::ok);
  std::ranges::fill(pair.a.bytes(qps.a_buffer, kSize), std::byte{0});
  pair.run_for(kHeld);
  EXPECT_TRUE(holds(pair.b, qps.b_buffer, std::span(data).first(4096)));
}

}  // namespace
}  // namespace softhca::transport_test
