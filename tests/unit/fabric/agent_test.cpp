// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <gmock/gmock.h>

#include <array>
#include <cstring>

#include "hw-model/fabric/subnet.h"
#include "hw-model/ib/mad.h"
#include "tests/unit/fabric/fabric_fixture.h"

namespace softhca::fabric {
namespace {

using testing::ElementsAre;

class AgentTest : public FabricTest {
 protected:
  using Mad = std::array<std::uint8_t, ib::kMadSize>;

  static Mad request(ib::MgmtClass mgmt_class, ib::MadMethod method, std::uint16_t attribute,
                     std::uint32_t modifier = 0) {
    Mad mad{};
    ib::MadHeader::base_version::set(mad.data(), 1);
    ib::MadHeader::mgmt_class::set(mad.data(), static_cast<std::uint8_t>(mgmt_class));
    ib::MadHeader::class_version::set(mad.data(), 1);
    ib::MadHeader::method::set(mad.data(), static_cast<std::uint8_t>(method));
    ib::MadHeader::transaction_id::set(mad.data(), 0x1122334455667788);
    ib::MadHeader::attribute_id::set(mad.data(), attribute);
    ib::MadHeader::attribute_modifier::set(mad.data(), modifier);
    return mad;
  }
  static Mad smp(ib::MadMethod method, ib::SmpAttribute attribute, std::uint32_t modifier = 0) {
    return request(ib::MgmtClass::subn_lid_routed, method, static_cast<std::uint16_t>(attribute),
                   modifier);
  }
  static Mad perf(ib::MadMethod method, ib::PerfAttribute attribute) {
    return request(ib::MgmtClass::perf, method, static_cast<std::uint16_t>(attribute));
  }

  /// Asks port a's agent, as MAD_IFC does.
  Mad ask(const Mad& in) {
    Mad out{};
    EXPECT_EQ(port_a->mad_agent()->process(in, out, ib::MKeyCheck::ignored),
              ib::MadResult::answered);
    return out;
  }
  static std::uint64_t status(const Mad& mad) { return ib::MadHeader::status::get(mad.data()); }
  static const std::uint8_t* smp_data(const Mad& mad) { return ib::Smp::data::at(mad.data()); }
  static std::uint8_t* smp_data(Mad& mad) { return ib::Smp::data::at(mad.data()); }

  Mad port_info() { return ask(smp(ib::MadMethod::get, ib::SmpAttribute::port_info, 1)); }
  Mad set_port_info(const Mad& current) {
    Mad in = smp(ib::MadMethod::set, ib::SmpAttribute::port_info, 1);
    std::memcpy(smp_data(in), smp_data(current), 64);
    return ask(in);
  }

  static ib::PacketPtr mad_packet(const Mad& mad, std::uint16_t dlid, std::uint32_t qp) {
    auto packet = packet_to(dlid, 1);
    packet->bth.opcode = ib::make_opcode(ib::Service::ud, ib::Operation::send_only);
    packet->bth.dest_qp = qp;
    packet->deth = {qp == 0 ? 0 : ib::kQp1Qkey, qp};
    packet->payload.resize(mad.size());
    std::memcpy(packet->payload.bytes(), mad.data(), mad.size());
    return packet;
  }
};

TEST_F(AgentTest, ResponseKeepsHeaderAndTransaction) {
  const Mad out = ask(smp(ib::MadMethod::get, ib::SmpAttribute::node_info));
  EXPECT_EQ(ib::MadHeader::method::get(out.data()), 0x81U);
  EXPECT_EQ(ib::MadHeader::transaction_id::get(out.data()), 0x1122334455667788U);
  EXPECT_EQ(ib::MadHeader::attribute_id::get(out.data()), 0x11U);
  EXPECT_EQ(status(out), ib::kMadOk);
}

TEST_F(AgentTest, NodeInfoNamesTheAdapter) {
  const Mad out = ask(smp(ib::MadMethod::get, ib::SmpAttribute::node_info));
  const auto* data = smp_data(out);
  EXPECT_EQ(ib::NodeInfo::node_type::get(data), 1U);
  EXPECT_EQ(ib::NodeInfo::num_ports::get(data), 1U);
  EXPECT_EQ(ib::NodeInfo::node_guid::get(data), 0xaU);
  EXPECT_EQ(ib::NodeInfo::port_guid::get(data), 0xaU);
  EXPECT_EQ(ib::NodeInfo::device_id::get(data), 0x1019U);
  EXPECT_EQ(ib::NodeInfo::vendor_id::get(data), 0x02c9U);
  EXPECT_EQ(ib::NodeInfo::partition_cap::get(data), 128U);
}

TEST_F(AgentTest, NodeDescriptionIsTheNameUntilTheDriverSetsIt) {
  Mad out = ask(smp(ib::MadMethod::get, ib::SmpAttribute::node_description));
  EXPECT_STREQ(reinterpret_cast<const char*>(smp_data(out)), "a");
  std::array<std::uint8_t, 64> text{'h', 'i'};
  port_a->set_node_description(text);
  out = ask(smp(ib::MadMethod::get, ib::SmpAttribute::node_description));
  EXPECT_STREQ(reinterpret_cast<const char*>(smp_data(out)), "hi");
}

TEST_F(AgentTest, PortInfoShowsWhatThePortIs) {
  const Mad out = port_info();
  const auto* data = smp_data(out);
  EXPECT_EQ(ib::PortInfo::lid::get(data), 2U);
  EXPECT_EQ(ib::PortInfo::master_sm_lid::get(data), 1U);
  EXPECT_EQ(ib::PortInfo::port_state::get(data), 4U);
  EXPECT_EQ(ib::PortInfo::port_physical_state::get(data), 5U);
  EXPECT_EQ(ib::PortInfo::gid_prefix::get(data), 0xfe80000000000000U);
  EXPECT_EQ(ib::PortInfo::mtu_cap::get(data), 5U);
  EXPECT_EQ(ib::PortInfo::neighbor_mtu::get(data), 5U);
  EXPECT_EQ(ib::PortInfo::link_width_active::get(data), 2U);
  EXPECT_EQ(ib::PortInfo::link_speed_active::get(data), 4U);
  EXPECT_EQ(ib::PortInfo::link_speed_ext_active::get(data), 2U) << "EDR";
  EXPECT_EQ(ib::PortInfo::guid_cap::get(data), 8U);
  EXPECT_NE(ib::PortInfo::operational_vls::get(data), 0U);
  EXPECT_NE(ib::PortInfo::capability_mask::get(data) & ib::kPortCapExtendedSpeeds, 0U);
}

TEST_F(AgentTest, CapabilityMaskOfTheDriverIsShown) {
  port_a->set_capability_mask(0x1234 | ib::kPortCapIsSm);
  EXPECT_EQ(ib::PortInfo::capability_mask::get(smp_data(port_info())), 0x1236U);
}

TEST_F(AgentTest, SetPortInfoMovesTheLidAndTheRoutes) {
  Mad info = port_info();
  ib::PortInfo::lid::set(smp_data(info), 40);
  ib::PortInfo::port_state::set(smp_data(info), 0);
  ib::PortInfo::client_reregister::set(smp_data(info), 1);
  EXPECT_EQ(status(set_port_info(info)), ib::kMadOk);
  EXPECT_EQ(ib::PortInfo::client_reregister::get(smp_data(port_info())), 0U);
  settle();
  EXPECT_THAT(a.events, ElementsAre(ib::PortEvent::lid_change, ib::PortEvent::client_reregister));
  port_b->send(packet_to(40, 1));
  port_b->send(packet_to(2, 2));
  settle();
  EXPECT_THAT(psns(a), ElementsAre(1U));
}

TEST_F(AgentTest, SetPortInfoRefusesWhatThePortCannotDo) {
  const Mad good = port_info();
  const auto status_with = [&](auto change) {
    Mad info = good;
    ib::PortInfo::port_state::set(smp_data(info), 0);
    change(smp_data(info));
    return status(set_port_info(info));
  };
  EXPECT_EQ(status_with([](auto* data) { ib::PortInfo::lid::set(data, 0); }), ib::kMadInvalidField);
  EXPECT_EQ(status_with([](auto* data) { ib::PortInfo::lid::set(data, 0xc000); }),
            ib::kMadInvalidField);
  EXPECT_EQ(status_with([](auto* data) { ib::PortInfo::neighbor_mtu::set(data, 6); }),
            ib::kMadInvalidField);
  EXPECT_EQ(status_with([](auto* data) { ib::PortInfo::operational_vls::set(data, 5); }),
            ib::kMadInvalidField);
  EXPECT_EQ(status_with([](auto* data) { ib::PortInfo::port_state::set(data, 3); }),
            ib::kMadInvalidField)
      << "ARMED only from INIT";
  EXPECT_EQ(port_a->attributes().lid, 2);
}

TEST_F(AgentTest, SetPortStateDownTrainsTheLinkAgain) {
  Mad info = port_info();
  ib::PortInfo::port_state::set(smp_data(info), 1);
  EXPECT_EQ(status(set_port_info(info)), ib::kMadOk);
  settle();
  EXPECT_TRUE(a.events.empty()) << "the response leaves before the link goes down";
  run_for(Subnet::kLinkDelay);
  EXPECT_EQ(port_a->attributes().state, ib::PortState::active);
  EXPECT_THAT(a.events,
              ElementsAre(ib::PortEvent::down, ib::PortEvent::initialized, ib::PortEvent::active));
}

TEST_F(AgentTest, GuidTableKeepsItsFirstEntryAndMakesGids) {
  Mad in = smp(ib::MadMethod::set, ib::SmpAttribute::guid_info, 0);
  smp_data(in)[7] = 0x99;
  smp_data(in)[15] = 0x42;
  const Mad out = ask(in);
  EXPECT_EQ(smp_data(out)[7], 0xa);
  EXPECT_EQ(smp_data(out)[15], 0x42);
  EXPECT_EQ(port_a->attributes().gids.at(1)[15], 0x42);
  EXPECT_EQ(port_a->attributes().gids.at(1)[0], 0xfe);
  settle();
  EXPECT_THAT(a.events, ElementsAre(ib::PortEvent::guid_change));
  EXPECT_EQ(status(ask(smp(ib::MadMethod::get, ib::SmpAttribute::guid_info, 1))),
            ib::kMadInvalidField);
}

TEST_F(AgentTest, PkeyTableIsReadAndWrittenByBlocks) {
  Mad in = smp(ib::MadMethod::set, ib::SmpAttribute::pkey_table, 1);
  smp_data(in)[0] = 0x80;
  smp_data(in)[1] = 0x01;
  ask(in);
  EXPECT_EQ(port_a->attributes().pkeys.at(0), 0xffff);
  EXPECT_EQ(port_a->attributes().pkeys.at(32), 0x8001);
  settle();
  EXPECT_THAT(a.events, ElementsAre(ib::PortEvent::pkey_change));
  EXPECT_EQ(status(ask(smp(ib::MadMethod::get, ib::SmpAttribute::pkey_table, 4))),
            ib::kMadInvalidField);
}

TEST_F(AgentTest, UnknownClassAndAttributeAreAnsweredWithAStatus) {
  EXPECT_EQ(status(ask(smp(ib::MadMethod::get, static_cast<ib::SmpAttribute>(0xff91)))),
            ib::kMadUnsupportedMethodAttribute);
  EXPECT_EQ(status(ask(request(ib::MgmtClass::dev_mgt, ib::MadMethod::get, 1))),
            ib::kMadBadVersion);
}

TEST_F(AgentTest, VendorsExtendedPortInfoHasNoSpeeds) {
  const Mad out = ask(smp(ib::MadMethod::get, ib::SmpAttribute::mlnx_extended_port_info, 1));
  EXPECT_EQ(status(out), ib::kMadOk);
  EXPECT_EQ(smp_data(out)[7], 0);
}

TEST_F(AgentTest, ResponsesAreNotAnswered) {
  Mad out{};
  EXPECT_EQ(
      port_a->mad_agent()->process(smp(ib::MadMethod::get_response, ib::SmpAttribute::node_info),
                                   out, ib::MKeyCheck::ignored),
      ib::MadResult::no_answer);
  EXPECT_EQ(out, Mad{});
}

TEST_F(AgentTest, DirectedRouteResponseHasItsDirectionBit) {
  const Mad out = ask(request(ib::MgmtClass::subn_directed_route, ib::MadMethod::get, 0x11));
  EXPECT_EQ(ib::Smp::direction::get(out.data()), 1U);
  EXPECT_EQ(ib::Smp::status::get(out.data()), 0U);
}

TEST_F(AgentTest, PortCountersSaturateAndClearBySelection) {
  for (std::uint32_t psn = 0; psn < 10; ++psn) port_a->send(packet_to(3, psn));
  settle();
  Mad in = perf(ib::MadMethod::get, ib::PerfAttribute::port_counters);
  auto* select = ib::PerfMad::data::at(in.data());
  ib::PortCountersAttribute::port_select::set(select, 1);
  Mad out = ask(in);
  const auto* data = ib::PerfMad::data::at(out.data());
  EXPECT_EQ(ib::PortCountersAttribute::port_xmit_packets::get(data), 10U);
  EXPECT_EQ(ib::PortCountersAttribute::port_xmit_data::get(data), 10U * 8);

  ib::MadHeader::method::set(in.data(), static_cast<std::uint8_t>(ib::MadMethod::set));
  ib::PortCountersAttribute::counter_select::set(select, 1U << 14);
  out = ask(in);
  EXPECT_EQ(ib::PortCountersAttribute::port_xmit_packets::get(data), 0U);
  EXPECT_EQ(ib::PortCountersAttribute::port_xmit_data::get(data), 10U * 8) << "not selected";

  for (int i = 0; i < 300; ++i) {
    fabric.set_link("a", false);
    fabric.set_link("a", true);
  }
  ib::MadHeader::method::set(in.data(), static_cast<std::uint8_t>(ib::MadMethod::get));
  out = ask(in);
  EXPECT_EQ(ib::PortCountersAttribute::link_downed_counter::get(data), 255U);

  ib::PortCountersAttribute::port_select::set(select, 2);
  EXPECT_EQ(status(ask(in)), ib::kMadInvalidField);
}

TEST_F(AgentTest, ExtendedCountersAreWide) {
  port_a->send(packet_to(3, 1));
  settle();
  Mad in = perf(ib::MadMethod::get, ib::PerfAttribute::port_counters_extended);
  ib::PortCountersExtendedAttribute::port_select::set(ib::PerfMad::data::at(in.data()), 1);
  const Mad out = ask(in);
  const auto* data = ib::PerfMad::data::at(out.data());
  EXPECT_EQ(ib::PortCountersExtendedAttribute::port_unicast_xmit_packets::get(data), 1U);
  EXPECT_EQ(ib::PortCountersExtendedAttribute::port_xmit_data::get(data), 8U);
}

TEST_F(AgentTest, PortAnswersFromTheWireWhenNoDriverTookTheSpecialQps) {
  a.owns_special = true;
  port_a->send(mad_packet(smp(ib::MadMethod::get, ib::SmpAttribute::node_info), 3, 0));
  port_a->send(mad_packet(perf(ib::MadMethod::get, ib::PerfAttribute::class_port_info), 3, 1));
  settle();
  ASSERT_EQ(a.packets.size(), 2U);
  EXPECT_TRUE(b.packets.empty());
  for (const auto& packet : a.packets) {
    EXPECT_EQ(packet->path.slid, 3);
    EXPECT_EQ(packet->payload.size(), ib::kMadSize);
    EXPECT_EQ(static_cast<std::uint8_t>(packet->payload[3]), 0x81);
  }
  EXPECT_EQ(a.packets[0]->bth.dest_qp, 0U);
  EXPECT_EQ(a.packets[0]->vl, 15) << "SMPs travel on VL15";
  EXPECT_EQ(a.packets[1]->bth.dest_qp, 1U);
  EXPECT_EQ(a.packets[1]->deth.qkey, ib::kQp1Qkey);
}

TEST_F(AgentTest, DriverThatTookTheSpecialQpsGetsTheirPackets) {
  b.owns_special = true;
  port_a->send(mad_packet(smp(ib::MadMethod::get, ib::SmpAttribute::node_info), 3, 0));
  settle();
  EXPECT_EQ(b.packets.size(), 1U);
}

TEST_F(AgentTest, ManagementDatagramsOfWrongSizeOrQpAreDropped) {
  a.owns_special = true;
  auto truncated = mad_packet(smp(ib::MadMethod::get, ib::SmpAttribute::node_info), 3, 0);
  truncated->payload.resize(100);
  port_a->send(std::move(truncated));
  port_a->send(mad_packet(smp(ib::MadMethod::get, ib::SmpAttribute::node_info), 3, 1));
  settle();
  EXPECT_TRUE(a.packets.empty());
}

}  // namespace
}  // namespace softhca::fabric
