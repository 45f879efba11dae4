// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The built-in switch as a node: its subnet and performance management agents.
#include <gmock/gmock.h>

#include "hw-model/fabric/subnet.h"
#include "tests/unit/fabric/mad_fixture.h"

namespace softhca::fabric {
namespace {

using ib::MadMethod;
using ib::SmpAttribute;
using testing::ElementsAre;

class SwitchTest : public MadTest {
 protected:
  Mad get(SmpAttribute attribute, std::uint32_t modifier = 0) {
    return ask(smp(MadMethod::get, attribute, modifier));
  }
  Mad set(SmpAttribute attribute, std::uint32_t modifier, const Mad& from) {
    Mad in = smp(MadMethod::set, attribute, modifier);
    std::memcpy(smp_data(in), smp_data(from), 64);
    return ask(in);
  }
};

TEST_F(SwitchTest, NodeInfoSaysSwitchAndThePortAskedBy) {
  const Mad out = get(SmpAttribute::node_info);
  EXPECT_EQ(ib::NodeInfo::node_type::get(smp_data(out)), 2U);
  EXPECT_EQ(ib::NodeInfo::num_ports::get(smp_data(out)), SwitchNode::kSmall);
  EXPECT_EQ(ib::NodeInfo::local_port_num::get(smp_data(out)), 1U);
  EXPECT_NE(ib::NodeInfo::node_guid::get(smp_data(out)), 0U);
}

TEST_F(SwitchTest, MoreHostsThanPortsMakeItABiggerSwitch) {
  std::vector<std::unique_ptr<RecordingHost>> hosts;
  for (unsigned i = 2; i <= SwitchNode::kSmall; ++i) {
    hosts.push_back(std::make_unique<RecordingHost>());
    ASSERT_NE(plug("h" + std::to_string(i), 0x1000 + i, *hosts.back()), nullptr);
  }
  EXPECT_EQ(ib::NodeInfo::num_ports::get(smp_data(get(SmpAttribute::node_info))), SwitchNode::kBig);
}

TEST_F(SwitchTest, PortZeroHasTheLidAndActsAsManager) {
  const Mad out = get(SmpAttribute::port_info, 0);
  EXPECT_EQ(ib::PortInfo::lid::get(smp_data(out)), kSwitchLid);
  EXPECT_EQ(ib::PortInfo::master_sm_lid::get(smp_data(out)), kSwitchLid);
  EXPECT_EQ(ib::PortInfo::port_state::get(smp_data(out)), 4U);
  EXPECT_NE(ib::PortInfo::capability_mask::get(smp_data(out)) & ib::kPortCapIsSm, 0U);
}

TEST_F(SwitchTest, ExternalPortsShowTheirLinks) {
  const Mad used = get(SmpAttribute::port_info, 2);
  EXPECT_EQ(ib::PortInfo::port_state::get(smp_data(used)), 4U);
  EXPECT_EQ(ib::PortInfo::lid::get(smp_data(used)), 0U) << "only port 0 has a LID";
  const Mad empty = get(SmpAttribute::port_info, 3);
  EXPECT_EQ(ib::PortInfo::port_state::get(smp_data(empty)), 1U);
  EXPECT_EQ(ib::PortInfo::port_physical_state::get(smp_data(empty)), 2U);
  EXPECT_EQ(status(get(SmpAttribute::port_info, SwitchNode::kSmall + 1U)), ib::kMadInvalidField);
}

TEST_F(SwitchTest, DisabledPortStaysDownUntilItIsEnabled) {
  Mad info = get(SmpAttribute::port_info, 2);
  ib::PortInfo::port_state::set(smp_data(info), 1);
  ib::PortInfo::port_physical_state::set(smp_data(info), 3);
  EXPECT_EQ(status(set(SmpAttribute::port_info, 2, info)), ib::kMadOk);
  run_for(Subnet::kLinkDelay);
  EXPECT_EQ(port_b->attributes().state, ib::PortState::down);
  info = get(SmpAttribute::port_info, 2);
  EXPECT_EQ(ib::PortInfo::port_physical_state::get(smp_data(info)), 3U);

  ib::PortInfo::port_state::set(smp_data(info), 0);
  ib::PortInfo::port_physical_state::set(smp_data(info), 2);
  EXPECT_EQ(status(set(SmpAttribute::port_info, 2, info)), ib::kMadOk);
  run_for(Subnet::kLinkDelay);
  EXPECT_EQ(port_b->attributes().state, ib::PortState::active);
}

TEST_F(SwitchTest, LinkTrainsToWhatBothEndsHaveEnabled) {
  Mad info = get(SmpAttribute::port_info, 2);
  ib::PortInfo::port_state::set(smp_data(info), 1);
  ib::PortInfo::port_physical_state::set(smp_data(info), 0);
  ib::PortInfo::link_width_enabled::set(smp_data(info), 1);
  ib::PortInfo::link_speed_ext_enabled::set(smp_data(info), 30);
  ib::PortInfo::link_speed_enabled::set(smp_data(info), 1);
  EXPECT_EQ(status(set(SmpAttribute::port_info, 2, info)), ib::kMadOk);
  run_for(Subnet::kLinkDelay);
  EXPECT_EQ(port_b->attributes().link_width_active, 1);
  EXPECT_EQ(port_b->attributes().link_speed_active, 1) << "SDR";
}

TEST_F(SwitchTest, SwitchInfoTellsTheSizeOfItsTables) {
  Mad out = get(SmpAttribute::switch_info);
  EXPECT_EQ(ib::SwitchInfo::linear_fdb_cap::get(smp_data(out)), 0xc000U);
  EXPECT_EQ(ib::SwitchInfo::multicast_fdb_cap::get(smp_data(out)), 1024U);
  EXPECT_EQ(ib::SwitchInfo::port_state_change::get(smp_data(out)), 1U);
  ib::SwitchInfo::port_state_change::set(smp_data(out), 1);
  out = set(SmpAttribute::switch_info, 0, out);
  EXPECT_EQ(ib::SwitchInfo::port_state_change::get(smp_data(out)), 0U) << "written to clear it";
}

TEST_F(SwitchTest, LinearTableShowsTheRoutesAndDecidesThem) {
  Mad table = get(SmpAttribute::linear_forwarding_table, 0);
  EXPECT_EQ(smp_data(table)[kSwitchLid], 0);
  EXPECT_EQ(smp_data(table)[kLidA], 1);
  EXPECT_EQ(smp_data(table)[kLidB], 2);
  EXPECT_EQ(smp_data(table)[9], 0xff) << "no route";
  smp_data(table)[9] = 2;
  set(SmpAttribute::linear_forwarding_table, 0, table);
  a.packets.clear();
  port_a->send(packet_to(9, 7));
  settle();
  EXPECT_THAT(psns(b), ElementsAre(7U));
  EXPECT_EQ(status(get(SmpAttribute::linear_forwarding_table, 0x300)), ib::kMadInvalidField);
}

TEST_F(SwitchTest, MulticastTableDecidesWhoGetsACopy) {
  Mad table = get(SmpAttribute::multicast_forwarding_table, 0);
  smp_data(table)[5 * 2 + 1] = 1U << 2;
  set(SmpAttribute::multicast_forwarding_table, 0, table);
  table = get(SmpAttribute::multicast_forwarding_table, 0);
  EXPECT_EQ(smp_data(table)[5 * 2 + 1], 1U << 2);
  port_a->send(packet_to(0xc005, 1));
  port_a->send(packet_to(0xc006, 2));
  settle();
  EXPECT_THAT(psns(b), ElementsAre(1U));
}

TEST_F(SwitchTest, PkeyEnforcementFiltersWhatTheTableDoesNotHold) {
  Mad info = get(SmpAttribute::port_info, 1);
  ib::PortInfo::port_state::set(smp_data(info), 0);
  ib::PortInfo::partition_enforcement_inbound::set(smp_data(info), 1);
  ASSERT_EQ(status(set(SmpAttribute::port_info, 1, info)), ib::kMadOk);
  auto foreign = packet_to(kLidB, 1);
  foreign->bth.pkey = 0x8001;
  port_a->send(std::move(foreign));
  port_a->send(packet_to(kLidB, 2));
  settle();
  EXPECT_THAT(psns(b), ElementsAre(2U));
}

TEST_F(SwitchTest, StoredTablesReadBack) {
  Mad in = smp(MadMethod::set, SmpAttribute::sl_to_vl_table, 0x0102);
  smp_data(in)[0] = 0x12;
  ask(in);
  EXPECT_EQ(smp_data(get(SmpAttribute::sl_to_vl_table, 0x0102))[0], 0x12);
  EXPECT_EQ(smp_data(get(SmpAttribute::sl_to_vl_table, 0x0201))[0], 0);
  in = smp(MadMethod::set, SmpAttribute::vl_arbitration, 0x00010002);
  smp_data(in)[1] = 0x34;
  ask(in);
  EXPECT_EQ(smp_data(get(SmpAttribute::vl_arbitration, 0x00010002))[1], 0x34);
  in = smp(MadMethod::set, SmpAttribute::pkey_table, 0x00020000);
  smp_data(in)[2] = 0x80;
  smp_data(in)[3] = 0x07;
  ask(in);
  EXPECT_EQ(smp_data(get(SmpAttribute::pkey_table, 0x00020000))[3], 0x07);
  EXPECT_EQ(smp_data(get(SmpAttribute::pkey_table, 0))[0], 0xff);
  EXPECT_NE(smp_data(get(SmpAttribute::guid_info, 0))[0], 0);
}

TEST_F(SwitchTest, ModifiersOutOfRangeAreRefused) {
  for (const auto& [attribute, modifier] : std::vector<std::pair<SmpAttribute, std::uint32_t>>{
           {SmpAttribute::sl_to_vl_table, 0xff01},
           {SmpAttribute::sl_to_vl_table, 0x01ff},
           {SmpAttribute::vl_arbitration, 0x00050001},
           {SmpAttribute::vl_arbitration, 0x000100ff},
           {SmpAttribute::pkey_table, 0x00ff0000},
           {SmpAttribute::pkey_table, 1},
           {SmpAttribute::guid_info, 1},
           {SmpAttribute::multicast_forwarding_table, 32},
           {SmpAttribute::linear_forwarding_table, 0xffffffff}}) {
    EXPECT_EQ(status(get(attribute, modifier)), ib::kMadInvalidField)
        << std::hex << static_cast<int>(attribute) << " modifier " << modifier;
  }
}

TEST_F(SwitchTest, PerfCountersOfAPortAndOfAllAndTheirReset) {
  for (std::uint32_t psn = 0; psn < 10; ++psn) port_a->send(packet_to(kLidB, psn));
  settle();
  Mad in = perf(MadMethod::get, ib::PerfAttribute::port_counters);
  using Counters = ib::PortCountersAttribute;
  Counters::port_select::set(ib::PerfMad::data::at(in.data()), 2);
  Mad out = ask(in);
  EXPECT_EQ(Counters::port_xmit_packets::get(ib::PerfMad::data::at(out.data())), 10U);
  Counters::port_select::set(ib::PerfMad::data::at(in.data()), 0xff);
  out = ask(in);
  EXPECT_GE(Counters::port_rcv_packets::get(ib::PerfMad::data::at(out.data())), 10U);

  Header::method::set(in.data(), static_cast<std::uint8_t>(MadMethod::set));
  Counters::counter_select::set(ib::PerfMad::data::at(in.data()), 0xffff);
  Counters::port_select::set(ib::PerfMad::data::at(in.data()), 2);
  out = ask(in);
  EXPECT_EQ(Counters::port_xmit_packets::get(ib::PerfMad::data::at(out.data())), 0U);
  Counters::port_select::set(ib::PerfMad::data::at(in.data()), SwitchNode::kSmall + 1U);
  EXPECT_EQ(status(ask(in)), ib::kMadInvalidField);
  const Mad info = ask(perf(MadMethod::get, ib::PerfAttribute::class_port_info));
  EXPECT_EQ(ib::ClassPortInfo::class_version::get(ib::PerfMad::data::at(info.data())), 1U);
}

TEST_F(SwitchTest, WrongMKeyIsNotAnsweredAsTheProtectBitsSay) {
  constexpr std::uint64_t kKey = 0x1234;
  Mad info = get(SmpAttribute::port_info, 0);
  const auto protect = [&](std::uint64_t bits) {
    Mad in = smp(MadMethod::set, SmpAttribute::port_info, 0);
    std::memcpy(smp_data(in), smp_data(info), 64);
    ib::PortInfo::port_state::set(smp_data(in), 0);
    ib::PortInfo::m_key::set(smp_data(in), kKey);
    ib::PortInfo::m_key_protect_bits::set(smp_data(in), bits);
    ib::Smp::m_key::set(in.data(), kKey);
    EXPECT_EQ(status(ask(in)), ib::kMadOk);
  };
  protect(0);
  EXPECT_EQ(ib::PortInfo::m_key::get(smp_data(get(SmpAttribute::port_info, 0))), kKey);
  EXPECT_FALSE(try_ask(smp(MadMethod::set, SmpAttribute::switch_info), kSwitchLid));
  protect(1);
  EXPECT_FALSE(try_ask(smp(MadMethod::set, SmpAttribute::switch_info), kSwitchLid));
  EXPECT_EQ(ib::PortInfo::m_key::get(smp_data(get(SmpAttribute::port_info, 0))), 0U) << "hidden";
  EXPECT_EQ(ib::PortInfo::m_key_violations::get(smp_data(get(SmpAttribute::port_info, 0))), 1U);
  protect(2);
  EXPECT_FALSE(try_ask(smp(MadMethod::get, SmpAttribute::node_info), kSwitchLid));
  Mad with_key = smp(MadMethod::get, SmpAttribute::node_info);
  ib::Smp::m_key::set(with_key.data(), kKey);
  EXPECT_EQ(status(ask(with_key)), ib::kMadOk);
}

TEST_F(SwitchTest, MKeyLeaseThatEndsLiftsTheProtection) {
  Mad in = smp(MadMethod::set, SmpAttribute::port_info, 0);
  std::memcpy(smp_data(in), smp_data(get(SmpAttribute::port_info, 0)), 64);
  ib::PortInfo::port_state::set(smp_data(in), 0);
  ib::PortInfo::m_key::set(smp_data(in), 7);
  ib::PortInfo::m_key_protect_bits::set(smp_data(in), 2);
  ib::PortInfo::m_key_lease_period::set(smp_data(in), 10);
  ASSERT_EQ(status(ask(in)), ib::kMadOk);
  EXPECT_FALSE(try_ask(smp(MadMethod::get, SmpAttribute::node_info), kSwitchLid));
  run_for(9'999'999'999);
  EXPECT_FALSE(try_ask(smp(MadMethod::get, SmpAttribute::node_info), kSwitchLid));
  run_for(2);
  EXPECT_TRUE(try_ask(smp(MadMethod::get, SmpAttribute::node_info), kSwitchLid));
}

}  // namespace
}  // namespace softhca::fabric
