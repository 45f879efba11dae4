// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/unit/fabric/fabric_fixture.h"

#include <gmock/gmock.h>

namespace softhca::fabric {
namespace {

using testing::ElementsAre;

constexpr ib::Gid kGroup = {0xff, 0x12, 0x40, 0x1b, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};

TEST_F(FabricTest, AttachedPortIsActiveWithLidGidAndDefaultPkey) {
  const auto& port = port_a->attributes();
  EXPECT_EQ(port.state, ib::PortState::active);
  EXPECT_EQ(port.phys_state, 5);
  EXPECT_EQ(port.lid, 2);
  EXPECT_EQ(port.sm_lid, 1);
  EXPECT_EQ(port_b->attributes().lid, 3);
  const ib::Gid expected = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xa};
  EXPECT_EQ(port.gids.at(0), expected);
  EXPECT_EQ(port.pkeys.at(0), 0xffff);
}

TEST_F(FabricTest, NewClientIsToldThatThePortIsActive) {
  RecordingHost c;
  plug("c", 0xc, c);
  EXPECT_TRUE(c.events.empty()) << "only step() calls a client";
  settle();
  EXPECT_THAT(c.events, ElementsAre(ib::PortEvent::active));
}

TEST_F(FabricTest, NamesAndGuidsAreUnique) {
  RecordingHost other;
  EXPECT_EQ(plug("a", 0x77, other), nullptr);
  EXPECT_EQ(plug("z", 0xa, other), nullptr);
  EXPECT_EQ(plug("", 0x77, other), nullptr);
}

TEST_F(FabricTest, PacketsArriveInOrderAndUnchanged) {
  for (std::uint32_t psn = 0; psn < 100; ++psn) port_a->send(packet_to(3, psn, psn));
  EXPECT_TRUE(b.packets.empty()) << "send() only queues";
  settle();
  ASSERT_EQ(b.packets.size(), 100U);
  for (std::uint32_t psn = 0; psn < 100; ++psn) {
    EXPECT_EQ(b.packets[psn]->bth.psn, psn);
    EXPECT_EQ(b.packets[psn]->payload.size(), psn);
    EXPECT_EQ(b.packets[psn]->path.slid, 2) << "the port fills in its LID";
  }
  EXPECT_TRUE(a.packets.empty());
}

TEST_F(FabricTest, PacketToTheOwnLidComesBackWithoutTheLink) {
  port_a->send(packet_to(2, 7));
  EXPECT_EQ(fabric.next_deadline(), 0U);
  settle();
  EXPECT_THAT(psns(a), ElementsAre(7U));
  EXPECT_EQ(fabric.status()[0].counters.xmit_packets(), 0U);
}

TEST_F(FabricTest, PacketToNobodyIsDiscardedBySwitch) {
  port_a->send(packet_to(99, 1));
  settle();
  EXPECT_TRUE(a.packets.empty());
  EXPECT_TRUE(b.packets.empty());
  EXPECT_EQ(fabric.next_deadline(), kNever);
}

TEST_F(FabricTest, CountersCountPacketsAndWordsAtBothEnds) {
  port_a->send(packet_to(3, 1, 5));
  settle();
  const auto status = fabric.status();
  // LRH 8 + BTH 12 + payload 5 + pad 3 + ICRC 4 = 32 bytes.
  EXPECT_EQ(status[0].counters.xmit_data, 8U);
  EXPECT_EQ(status[0].counters.xmit_packets(), 1U);
  EXPECT_EQ(status[1].counters.rcv_data, 8U);
  EXPECT_EQ(status[1].counters.rcv_packets(), 1U);
}

TEST_F(FabricTest, FullQueueIsNotReadyAndRoomIsAnnouncedOnce) {
  std::uint32_t psn = 0;
  while (port_a->ready()) port_a->send(packet_to(3, psn++));
  EXPECT_EQ(psn, Channel::kSoftLimit);
  settle();
  EXPECT_TRUE(port_a->ready());
  EXPECT_EQ(a.ready_notices, 1U);
  EXPECT_EQ(b.packets.size(), psn);
}

TEST_F(FabricTest, OneReceiverServesTwoSendersFairly) {
  RecordingHost c;
  ib::Port* port_c = plug("c", 0xc, c);
  settle();
  for (std::uint32_t i = 0; i < Channel::kSoftLimit; ++i) {
    port_a->send(packet_to(3, i));
    port_c->send(packet_to(3, 1000 + i));
  }
  fabric.step({.packets_per_port = 32});
  fabric.step({.packets_per_port = 32});
  std::size_t from_c = 0;
  for (const auto& packet : b.packets) from_c += packet->bth.psn >= 1000 ? 1 : 0;
  EXPECT_GT(from_c, 0U);
  EXPECT_LT(from_c, b.packets.size());
  settle();
  EXPECT_EQ(b.packets.size(), 2 * Channel::kSoftLimit);
}

TEST_F(FabricTest, LinkDownStopsTrafficAndTellsBothTheDriverAndTheCounter) {
  port_a->send(packet_to(3, 1));
  ASSERT_TRUE(fabric.set_link("b", false));
  port_b->send(packet_to(2, 2));
  settle();
  EXPECT_TRUE(a.packets.empty());
  EXPECT_TRUE(b.packets.empty());
  EXPECT_THAT(b.events, ElementsAre(ib::PortEvent::down));
  EXPECT_TRUE(a.events.empty());
  EXPECT_EQ(port_b->attributes().state, ib::PortState::down);
  EXPECT_EQ(fabric.status()[1].counters.link_downed, 1U);
  EXPECT_EQ(fabric.status()[1].counters.xmit_discards, 1U);
}

TEST_F(FabricTest, LinkUpBringsThePortBackToActiveWithItsLid) {
  fabric.set_link("b", false);
  fabric.set_link("b", true);
  settle();
  EXPECT_EQ(port_b->attributes().state, ib::PortState::active);
  EXPECT_EQ(port_b->attributes().lid, 3);
  EXPECT_THAT(b.events,
              ElementsAre(ib::PortEvent::down, ib::PortEvent::initialized, ib::PortEvent::active));
  port_a->send(packet_to(3, 5));
  settle();
  EXPECT_THAT(psns(b), ElementsAre(5U));
}

TEST_F(FabricTest, UnknownLinkIsRefused) {
  EXPECT_FALSE(fabric.set_link("nobody", false));
  EXPECT_FALSE(fabric.configure_link("nobody", {}));
  EXPECT_FALSE(fabric.set_fault("nobody", {}));
  EXPECT_FALSE(fabric.detach("nobody"));
  EXPECT_FALSE(fabric.connect("nobody", &a));
}

TEST_F(FabricTest, PacketsToAHostThatLeftVanish) {
  port_a->send(packet_to(3, 1));
  ASSERT_TRUE(fabric.detach("b"));
  settle();
  EXPECT_TRUE(b.packets.empty());
  EXPECT_EQ(fabric.status().size(), 1U);
}

TEST_F(FabricTest, HostThatReturnsGetsItsLidBack) {
  fabric.detach("a");
  RecordingHost c;
  EXPECT_EQ(plug("c", 0xc, c)->attributes().lid, 2) << "free LIDs are given again";
  RecordingHost again;
  fabric.detach("c");
  fabric.detach("b");
  EXPECT_EQ(plug("b", 0xb, again)->attributes().lid, 3) << "though LID 2 is free";
}

TEST_F(FabricTest, SwitchPortsRunOut) {
  std::vector<std::unique_ptr<RecordingHost>> hosts;
  for (unsigned i = 2; i < 254; ++i) {
    hosts.push_back(std::make_unique<RecordingHost>());
    ASSERT_NE(plug("h" + std::to_string(i), 0x1000 + i, *hosts.back()), nullptr);
  }
  RecordingHost one_more;
  EXPECT_EQ(plug("more", 0x9999, one_more), nullptr);
  fabric.detach("h100");
  EXPECT_NE(plug("more", 0x9999, one_more), nullptr);
}

TEST_F(FabricTest, MulticastReachesTheMembersAndLoopsBackOnlyToAMember) {
  RecordingHost c;
  ib::Port* port_c = plug("c", 0xc, c);
  settle();
  const auto send_to_group = [&](std::uint32_t psn) {
    auto packet = packet_to(0xc001, psn);
    packet->path.has_grh = true;
    packet->path.grh.dgid = kGroup;
    port_a->send(std::move(packet));
    settle();
  };
  send_to_group(1);
  EXPECT_TRUE(a.packets.empty() && b.packets.empty() && c.packets.empty());
  port_b->attach_multicast(kGroup);
  port_c->attach_multicast(kGroup);
  send_to_group(2);
  port_a->attach_multicast(kGroup);
  port_a->attach_multicast(kGroup);
  port_b->detach_multicast(kGroup);
  port_a->detach_multicast(kGroup);
  send_to_group(3);
  EXPECT_THAT(psns(a), ElementsAre(3U));
  EXPECT_THAT(psns(b), ElementsAre(2U));
  EXPECT_THAT(psns(c), ElementsAre(2U, 3U));
}

TEST_F(FabricTest, WhatADeliveryIsAnsweredByMovesInTheSameStep) {
  class Answerer final : public ib::PortClient {
   public:
    ib::Port* port = nullptr;
    std::vector<ib::PacketPtr> received;
    unsigned deliveries = 0;
    void receive(ib::Packet& packet) override {
      received.push_back(std::make_unique<ib::Packet>(std::move(packet)));
    }
    void delivered() override {
      ++deliveries;
      port->send(packet_to(2, 100));
    }
    void port_ready() override {}
    void port_event(ib::PortEvent) override {}
  };
  Answerer answerer;
  answerer.port = port_b;
  fabric.connect("b", &answerer);
  settle();
  for (std::uint32_t psn = 1; psn <= 3; ++psn) port_a->send(packet_to(3, psn));
  fabric.step();
  EXPECT_EQ(answerer.received.size(), 3U);
  EXPECT_EQ(answerer.deliveries, 1U) << "once for all that came";
  EXPECT_EQ(a.packets.size(), 1U);
  settle();
  EXPECT_EQ(answerer.deliveries, 1U) << "nothing more was delivered";
}

TEST_F(FabricTest, ManagersHearOfAChangedCapabilityMaskWithoutTraffic) {
  settle();
  EXPECT_EQ(fabric.next_deadline(), kNever);
  port_b->set_capability_mask(port_b->attributes().capability_mask | 2);  // IsSM.
  EXPECT_EQ(fabric.next_deadline(), 0U);
  settle();
  EXPECT_NE(fabric.next_deadline(), kNever) << "it is polled from now on";
}

TEST_F(FabricTest, AnswersSentFromInsideReceiveDoNotRecurse) {
  // Two hosts that bounce every packet: step() must return within its budget all the same.
  class Bouncer final : public ib::PortClient {
   public:
    ib::Port* port = nullptr;
    std::uint16_t peer = 0;
    unsigned depth = 0;
    unsigned count = 0;
    void receive(ib::Packet& packet) override {
      EXPECT_EQ(depth++, 0U);
      ++count;
      packet.path.slid = 0;
      packet.path.dlid = peer;
      port->send(std::make_unique<ib::Packet>(packet));
      --depth;
    }
    void port_ready() override {}
    void port_event(ib::PortEvent) override {}
  };
  Bouncer left;
  Bouncer right;
  left.port = port_a;
  left.peer = 3;
  right.port = port_b;
  right.peer = 2;
  fabric.connect("a", &left);
  fabric.connect("b", &right);
  port_a->send(packet_to(3, 1));
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(fabric.step());
  EXPECT_GE(right.count, 4U);
  EXPECT_LE(right.count, 10U);
}

}  // namespace
}  // namespace softhca::fabric
