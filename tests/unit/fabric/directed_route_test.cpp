// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Directed route SMPs (IBA 14.2.2), through the switch and to hosts whose agents answer.
#include <gmock/gmock.h>

#include "tests/unit/fabric/mad_fixture.h"

namespace softhca::fabric {
namespace {

using ib::MadMethod;
using ib::SmpAttribute;

class DirectedRouteTest : public MadTest {};

TEST_F(DirectedRouteTest, OneHopReachesTheSwitch) {
  const Mad out = ask_directed(directed(MadMethod::get, SmpAttribute::node_info, {1}));
  EXPECT_EQ(status(out), ib::kMadOk);
  EXPECT_EQ(ib::Smp::direction::get(out.data()), 1U);
  EXPECT_EQ(ib::Smp::hop_pointer::get(out.data()), 1U) << "the sender's port takes the last hop";
  EXPECT_EQ(ib::Smp::return_path::at(out.data())[1], 1);
  EXPECT_EQ(ib::NodeInfo::node_type::get(smp_data(out)), 2U);
}

TEST_F(DirectedRouteTest, TwoHopsReachTheHostBehindAPort) {
  const Mad out = ask_directed(directed(MadMethod::get, SmpAttribute::node_info, {1, 2}));
  EXPECT_EQ(status(out), ib::kMadOk);
  EXPECT_EQ(ib::NodeInfo::node_guid::get(smp_data(out)), 0xbU);
  EXPECT_EQ(ib::Smp::hop_pointer::get(out.data()), 1U);
  EXPECT_EQ(ib::Smp::return_path::at(out.data())[1], 1);
  EXPECT_EQ(ib::Smp::return_path::at(out.data())[2], 1);
}

TEST_F(DirectedRouteTest, WorksBeforeThePortsHaveLids) {
  Mad info = ask_directed(directed(MadMethod::get, SmpAttribute::port_info, {1, 2}, 1));
  Mad set = directed(MadMethod::set, SmpAttribute::port_info, {1, 2}, 1);
  std::memcpy(smp_data(set), smp_data(info), 64);
  ib::PortInfo::port_state::set(smp_data(set), 0);
  ib::PortInfo::lid::set(smp_data(set), 77);
  EXPECT_EQ(status(ask_directed(set)), ib::kMadOk);
  EXPECT_EQ(port_b->attributes().lid, 77);
}

TEST_F(DirectedRouteTest, LidRoutedStartThenPorts) {
  Mad in = directed(MadMethod::get, SmpAttribute::node_info, {2});
  ib::Smp::hop_pointer::set(in.data(), 0);
  ib::Smp::dr_slid::set(in.data(), kLidA);
  const Mad out = ask(in, kSwitchLid);
  EXPECT_EQ(ib::NodeInfo::node_guid::get(smp_data(out)), 0xbU);
  EXPECT_EQ(ib::Smp::hop_pointer::get(out.data()), 0U) << "it came back by LID";
}

TEST_F(DirectedRouteTest, PortsThenLidRoutedEnd) {
  Mad in = directed(MadMethod::get, SmpAttribute::node_info, {1});
  ib::Smp::dr_dlid::set(in.data(), kLidB);
  const Mad out = ask_directed(in);
  EXPECT_EQ(ib::NodeInfo::node_guid::get(smp_data(out)), 0xbU);
  EXPECT_EQ(ib::Smp::hop_pointer::get(out.data()), 1U);
}

TEST_F(DirectedRouteTest, ZeroHopsByLidIsForTheNodeItself) {
  Mad in = directed(MadMethod::get, SmpAttribute::node_info, {});
  ib::Smp::hop_pointer::set(in.data(), 0);
  const Mad out = ask(in, kSwitchLid);
  EXPECT_EQ(ib::NodeInfo::node_type::get(smp_data(out)), 2U);
}

TEST_F(DirectedRouteTest, UnreasonablePathsAreDropped) {
  const auto answered = [&](auto change) {
    Mad in = directed(MadMethod::get, SmpAttribute::node_info, {1, 2});
    change(in.data());
    return try_ask(in, ib::kPermissiveLid).has_value();
  };
  EXPECT_FALSE(answered([](auto* mad) { ib::Smp::initial_path::at(mad)[2] = 0; }));
  EXPECT_FALSE(answered([](auto* mad) { ib::Smp::initial_path::at(mad)[2] = 9; })) << "empty port";
  EXPECT_FALSE(answered([](auto* mad) { ib::Smp::initial_path::at(mad)[2] = 255; }));
  EXPECT_FALSE(answered([](auto* mad) { ib::Smp::hop_count::set(mad, 64); }));
  EXPECT_FALSE(answered([](auto* mad) { ib::Smp::hop_count::set(mad, 255); }));
  EXPECT_FALSE(answered([](auto* mad) { ib::Smp::hop_pointer::set(mad, 0); }));
  EXPECT_FALSE(answered([](auto* mad) { ib::Smp::hop_pointer::set(mad, 200); }));
  EXPECT_FALSE(answered([](auto* mad) { ib::Smp::hop_count::set(mad, 3); }))
      << "a host forwards nothing";
}

TEST_F(DirectedRouteTest, SwitchPassesOnWhatItIsNotTheEndOf) {
  b.owns_special = true;
  port_a->send(
      mad_packet(directed(MadMethod::get, SmpAttribute::node_info, {1, 2}), ib::kPermissiveLid));
  settle();
  ASSERT_EQ(b.packets.size(), 1U);
  const Mad mad = mad_of(*b.packets.front());
  EXPECT_EQ(ib::Smp::hop_pointer::get(mad.data()), 2U);
  EXPECT_EQ(ib::Smp::return_path::at(mad.data())[1], 1);
}

TEST_F(DirectedRouteTest, ResponseWithALidIsStillLedByItsPorts) {
  // Drivers answer to the LID a request came from; in the directed part the ports count.
  Mad response = directed(MadMethod::get_response, SmpAttribute::node_info, {1, 2});
  ib::Smp::direction::set(response.data(), 1);
  ib::Smp::hop_pointer::set(response.data(), 2);
  ib::Smp::return_path::at(response.data())[1] = 2;
  port_a->send(mad_packet(response, 99));
  b.owns_special = true;
  settle();
  ASSERT_EQ(b.packets.size(), 1U);
  EXPECT_EQ(ib::Smp::hop_pointer::get(mad_of(*b.packets.front()).data()), 1U);
}

}  // namespace
}  // namespace softhca::fabric
