// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <gmock/gmock.h>

#include "hw-model/ib/codec.h"
#include "tests/unit/fabric/fabric_fixture.h"

namespace softhca::fabric {
namespace {

using testing::ElementsAre;

class RecordingObserver final : public LinkObserver {
 public:
  struct Seen {
    std::string link;
    Direction direction;
    std::vector<std::byte> bytes;
  };
  void observe(const LinkObservation& seen_now) override {
    seen.push_back({std::string(seen_now.link),
                    seen_now.direction,
                    {seen_now.bytes.begin(), seen_now.bytes.end()}});
  }
  std::vector<Seen> seen;
};

class LinkTest : public FabricTest {
 protected:
  /// Moves time from deadline to deadline until nothing is pending.
  void run() {
    settle();
    while (fabric.next_deadline() != kNever) {
      ASSERT_GT(fabric.next_deadline(), clock.now());
      clock.set(fabric.next_deadline());
      settle();
    }
  }
};

TEST_F(LinkTest, DelayHoldsAPacketForTheTimeOfFlight) {
  fabric.configure_link("a", {.delay = 500});
  const Nanoseconds start = clock.now();
  port_a->send(packet_to(3, 1));
  settle();
  EXPECT_TRUE(b.packets.empty());
  EXPECT_EQ(fabric.next_deadline(), start + 500);
  clock.set(start + 499);
  settle();
  EXPECT_TRUE(b.packets.empty());
  clock.set(start + 500);
  settle();
  EXPECT_EQ(b.packets.size(), 1U);
}

TEST_F(LinkTest, RateSpacesPacketsByTheirSize) {
  // 1 byte per nanosecond; 8 + 12 + 1000 + 4 + 2 bytes on the wire.
  fabric.configure_link("a", {.bytes_per_second = 1'000'000'000});
  const Nanoseconds start = clock.now();
  for (std::uint32_t psn = 0; psn < 3; ++psn) port_a->send(packet_to(3, psn, 1000));
  run();
  EXPECT_EQ(clock.now(), start + 3 * 1026);
  EXPECT_THAT(psns(b), ElementsAre(0U, 1U, 2U));
}

TEST_F(LinkTest, SlowReceiverHoldsTheSenderBackWithoutLoss) {
  fabric.configure_link("b", {.bytes_per_second = 1'000'000'000});
  std::uint32_t sent = 0;
  for (; sent < 2000 && port_a->ready(); ++sent) {
    port_a->send(packet_to(3, sent));
    settle();
  }
  EXPECT_LT(sent, 3 * Channel::kSoftLimit) << "both queues are bounded";
  run();
  EXPECT_EQ(b.packets.size(), sent);
  EXPECT_EQ(fabric.status()[0].counters.xmit_discards, 0U);
}

TEST_F(LinkTest, FaultsDropDuplicateAndDelay) {
  fabric.set_fault("a", [](const ib::Packet& packet, Direction direction, Nanoseconds) {
    Verdict verdict;
    if (direction == Direction::from_host) {
      verdict.drop = packet.bth.psn == 1;
      verdict.duplicate = packet.bth.psn == 2;
      if (packet.bth.psn == 3) verdict.extra_delay = 1000;
    }
    return verdict;
  });
  for (std::uint32_t psn = 0; psn < 5; ++psn) port_a->send(packet_to(3, psn));
  run();
  EXPECT_THAT(psns(b), ElementsAre(0U, 2U, 2U, 4U, 3U));
}

TEST_F(LinkTest, DamagedPacketIsDiscardedAndCounted) {
  fabric.set_fault("b", [](const ib::Packet& packet, Direction, Nanoseconds) {
    Verdict verdict;
    if (packet.bth.psn == 0) verdict.flip_bits = {100};
    if (packet.bth.psn == 1) {
      verdict.flip_bits = {20 * 8 + 3};
      verdict.repair_vcrc = true;
    }
    return verdict;
  });
  for (std::uint32_t psn = 0; psn < 3; ++psn) port_a->send(packet_to(3, psn));
  run();
  EXPECT_THAT(psns(b), ElementsAre(2U));
  EXPECT_EQ(fabric.status()[1].counters.rcv_errors, 2U);
}

TEST_F(LinkTest, ObserverSeesBytesOfItsLinkInBothDirections) {
  RecordingObserver observer;
  EXPECT_FALSE(fabric.add_observer("nobody", observer));
  ASSERT_TRUE(fabric.add_observer("a", observer));
  port_a->send(packet_to(3, 1, 3));
  settle();
  port_b->send(packet_to(2, 2, 3));
  settle();
  fabric.remove_observer(observer);
  port_a->send(packet_to(3, 3));
  settle();
  ASSERT_EQ(observer.seen.size(), 2U);
  EXPECT_EQ(observer.seen[0].direction, Direction::from_host);
  EXPECT_EQ(observer.seen[1].direction, Direction::to_host);
  EXPECT_EQ(observer.seen[1].link, "a");
  ib::Packet packet;
  ASSERT_EQ(ib::decode(observer.seen[1].bytes, packet), ib::DecodeStatus::ok);
  EXPECT_EQ(packet.bth.psn, 2U);
  EXPECT_EQ(packet.payload.size(), 3U);
}

TEST_F(LinkTest, LinkDownLosesWhatFlies) {
  fabric.configure_link("a", {.delay = 500});
  port_a->send(packet_to(3, 1));
  settle();
  fabric.set_link("a", false);
  fabric.set_link("a", true);
  run();
  EXPECT_TRUE(b.packets.empty());
}

}  // namespace
}  // namespace softhca::fabric
