// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/fabric/cut_through.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <tuple>

#include "tests/unit/fabric/fabric_fixture.h"

namespace softhca::fabric {
namespace {

using testing::ElementsAre;

class CutThroughTest : public FabricTest {
 protected:
  CutThroughTest() { settle(); }

  bool carries(std::uint32_t psn = 1) { return port_a->cut_through(*packet_to(3, psn)); }
};

TEST_F(CutThroughTest, APacketArrivesWithinTheCall) {
  EXPECT_TRUE(carries());
  EXPECT_THAT(psns(b), ElementsAre(1U));
  EXPECT_EQ(fabric.next_deadline(), 0U) << "its receiver may have work";
  EXPECT_TRUE(fabric.step());
  EXPECT_EQ(fabric.next_deadline(), kNever);
  EXPECT_FALSE(fabric.step());
}

TEST_F(CutThroughTest, TheSameCountersCountAsOnTheLongWay) {
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, std::size_t{8}, std::size_t{4096}}) {
    const auto before = fabric.status();
    ASSERT_TRUE(port_a->cut_through(*packet_to(3, 1, size)));
    const auto short_way = fabric.status();
    port_a->send(packet_to(3, 2, size));
    settle();
    const auto long_way = fabric.status();
    for (std::size_t host = 0; host < before.size(); ++host) {
      const auto difference = [&](const auto& to, const auto& from) {
        return std::tuple(to[host].counters.xmit_data - from[host].counters.xmit_data,
                          to[host].counters.rcv_data - from[host].counters.rcv_data,
                          to[host].counters.xmit_packets() - from[host].counters.xmit_packets(),
                          to[host].counters.rcv_packets() - from[host].counters.rcv_packets());
      };
      EXPECT_EQ(difference(short_way, before), difference(long_way, short_way)) << size;
    }
  }
}

TEST_F(CutThroughTest, NothingIsOvertaken) {
  port_a->send(packet_to(3, 1));
  EXPECT_FALSE(carries(2));
  settle();
  EXPECT_TRUE(carries(3));
  EXPECT_THAT(psns(b), ElementsAre(1U, 3U));
}

TEST_F(CutThroughTest, WhatAFaultACaptureOrALinkOfSomeLengthMustSeeGoesTheLongWay) {
  class Watcher final : public LinkObserver {
    void observe(const LinkObservation&) override {}
  };
  for (const char* link : {"a", "b"}) {
    fabric.set_fault(link, [](const ib::Packet&, Direction, Nanoseconds) { return Verdict{}; });
    EXPECT_FALSE(carries());
    fabric.set_fault(link, nullptr);
    Watcher watcher;
    fabric.add_observer(link, watcher);
    EXPECT_FALSE(carries());
    fabric.remove_observer(watcher);
    fabric.configure_link(link, {.delay = 1});
    EXPECT_FALSE(carries());
    fabric.configure_link(link, {.bytes_per_second = 1});
    EXPECT_FALSE(carries());
    fabric.configure_link(link, {});
    fabric.set_link(link, false);
    EXPECT_FALSE(carries());
    fabric.set_link(link, true);
    settle();
    EXPECT_TRUE(carries());
  }
}

TEST_F(CutThroughTest, ManagementMulticastLoopbackAndUnknownLidsGoTheLongWay) {
  const auto refuses = [this](const std::function<void(ib::Packet&)>& change) {
    auto packet = packet_to(3, 1);
    change(*packet);
    return !port_a->cut_through(*packet);
  };
  EXPECT_TRUE(refuses([](ib::Packet& packet) { packet.bth.dest_qp = ib::kQp0; }));
  EXPECT_TRUE(refuses([](ib::Packet& packet) { packet.bth.dest_qp = ib::kQp1; }));
  for (const std::uint16_t lid : {0, 1, 2, 4, 0xbfff, 0xc000, 0xffff}) {
    EXPECT_TRUE(refuses([lid](ib::Packet& packet) { packet.path.dlid = lid; })) << lid;
  }
  EXPECT_TRUE(b.packets.empty());
}

TEST_F(CutThroughTest, NobodyThere) {
  fabric.connect("b", nullptr);
  settle();
  EXPECT_FALSE(carries());
  fabric.detach("b");
  EXPECT_FALSE(carries());
  settle();
}

TEST_F(CutThroughTest, AReceiverAnswersWhenTheSenderHasDone) {
  class Answerer final : public ib::PortClient {
   public:
    ib::Port* port = nullptr;
    unsigned deliveries = 0;
    void receive(ib::Packet&) override {}
    void delivered() override {
      ++deliveries;
      EXPECT_TRUE(port->cut_through(*packet_to(2, 100)));
    }
    void port_ready() override {}
    void port_event(ib::PortEvent) override {}
  };
  Answerer answerer;
  answerer.port = port_b;
  fabric.connect("b", &answerer);
  settle();
  EXPECT_TRUE(carries(1));
  EXPECT_TRUE(carries(2));
  EXPECT_EQ(answerer.deliveries, 0U);
  port_a->end_turn();
  EXPECT_EQ(answerer.deliveries, 1U) << "once for both";
  EXPECT_THAT(psns(a), ElementsAre(100U));

  // Who does not end a turn (a QP that is destroyed) is waited for until the next step.
  EXPECT_TRUE(carries(3));
  EXPECT_TRUE(fabric.step());
  EXPECT_EQ(answerer.deliveries, 2U);
  fabric.connect("b", nullptr);
}

}  // namespace
}  // namespace softhca::fabric
