// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What drivers learn of the port, by HCA vport commands, access registers and MADs.
#include <gtest/gtest.h>

#include <cstring>

#include "hw-model/firmware/syndromes.h"
#include "hw-model/ib/mad.h"
#include "hw-model/prm/access_registers.h"
#include "hw-model/prm/commands_hca.h"
#include "hw-model/prm/eqe.h"
#include "hw-model/prm/vport.h"
#include "tests/support/one_host.h"

namespace softhca::test {
namespace {

using prm::CommandOpcode;
using prm::CommandStatus;

class PortTest : public ::testing::Test {
 protected:
  PortTest() { driver.bring_up(); }

  CommandReply access(prm::RegisterId id, bool write, std::vector<std::uint8_t> data) {
    CommandBuffer command(CommandOpcode::access_reg, prm::AccessRegisterInput::size + data.size(),
                          write ? 0 : 1);
    command.set<prm::AccessRegisterInput::register_id>(static_cast<unsigned>(id));
    std::memcpy(command.at<prm::Block<prm::AccessRegisterInput::register_data_offset, 0>>(),
                data.data(), data.size());
    return driver.run(command, prm::AccessRegisterOutput::size + data.size());
  }
  static std::vector<std::uint8_t> for_port(std::size_t size, std::uint8_t port = 1) {
    std::vector<std::uint8_t> data(size);
    data[1] = port;
    return data;
  }
  static const std::uint8_t* data_of(const CommandReply& reply) {
    return reply.out.data() + prm::AccessRegisterOutput::register_data_offset;
  }

  static const std::uint8_t* response_of(const CommandReply& reply) {
    return prm::MadIfcOutput::response_mad_packet::at(reply.out.data());
  }
  /// PortInfo as the driver itself reads it, without regard to the M_Key.
  static CommandReply port_info_reply(MiniDriver& driver) {
    CommandBuffer command(CommandOpcode::mad_ifc, prm::MadIfcInput::size, 3);
    command.set<prm::MadIfcInput::port>(1);
    std::uint8_t* mad = command.at<prm::MadIfcInput::mad>();
    ib::MadHeader::base_version::set(mad, 1);
    ib::MadHeader::mgmt_class::set(mad, 1);
    ib::MadHeader::class_version::set(mad, 1);
    ib::MadHeader::method::set(mad, 1);
    ib::MadHeader::attribute_id::set(mad, static_cast<unsigned>(ib::SmpAttribute::port_info));
    ib::MadHeader::attribute_modifier::set(mad, 1);
    return driver.must(command, prm::MadIfcOutput::size);
  }

  OneHost host;
  MiniDriver& driver = host.driver;
};

TEST_F(PortTest, vport_context_shows_an_active_port_with_a_lid) {
  const CommandReply reply = driver.must({CommandOpcode::query_hca_vport_context, 16}, 0x210);
  const std::uint8_t* context =
      prm::QueryHcaVportContextOutput::hca_vport_context::at(reply.out.data());
  using prm::HcaVportContext;
  EXPECT_EQ(HcaVportContext::vport_state::get(context), 4U);
  EXPECT_EQ(HcaVportContext::port_physical_state::get(context), 5U);
  EXPECT_EQ(HcaVportContext::lid::get(context), host.port->attributes().lid);
  EXPECT_NE(HcaVportContext::lid::get(context), 0U);
  EXPECT_EQ(HcaVportContext::node_guid::get(context), OneHost::kGuid);
  EXPECT_EQ(HcaVportContext::has_smi::get(context), 1U);
}

TEST_F(PortTest, gid_and_pkey_tables_are_read_by_entry_or_whole) {
  CommandBuffer gid(CommandOpcode::query_hca_vport_gid, 16);
  const CommandReply one = driver.must(gid, 16 + 16);
  EXPECT_EQ(one.out[16], 0xfe);
  EXPECT_EQ(one.out[17], 0x80);
  EXPECT_TRUE(driver.run(gid.set<prm::QueryHcaVportGidInput::gid_index>(0xffff), 16 + 8 * 16).ok());
  EXPECT_EQ(driver.run(gid.set<prm::QueryHcaVportGidInput::gid_index>(8), 32).status,
            CommandStatus::bad_parameter);
  EXPECT_EQ(driver.run(gid.set<prm::QueryHcaVportGidInput::gid_index>(0xffff), 32).status,
            CommandStatus::bad_output_length);

  CommandBuffer pkey(CommandOpcode::query_hca_vport_pkey, 16);
  const CommandReply first = driver.must(pkey, 16 + 4);
  EXPECT_EQ(first.out[18], 0xff) << "the default partition";
  EXPECT_EQ(first.out[19], 0xff);
  EXPECT_TRUE(
      driver.run(pkey.set<prm::QueryHcaVportPkeyInput::pkey_index>(0xffff), 16 + 128 * 4).ok());
  EXPECT_EQ(driver.run(pkey.set<prm::QueryHcaVportPkeyInput::pkey_index>(128), 20).status,
            CommandStatus::bad_parameter);
}

TEST_F(PortTest, another_port_or_vport_does_not_exist) {
  CommandBuffer query(CommandOpcode::query_hca_vport_context, 16);
  EXPECT_EQ(driver.run(query.set<prm::QueryHcaVportContextInput::port_num>(2), 0x210).syndrome,
            static_cast<std::uint32_t>(Syndrome::bad_port));
  CommandBuffer other(CommandOpcode::query_hca_vport_context, 16);
  EXPECT_EQ(driver.run(other.set<prm::QueryHcaVportContextInput::other_vport>(1), 0x210).syndrome,
            static_cast<std::uint32_t>(Syndrome::bad_vport));
}

TEST_F(PortTest, the_is_sm_bit_can_be_set_and_others_cannot) {
  CommandBuffer modify(CommandOpcode::modify_hca_vport_context,
                       prm::ModifyHcaVportContextInput::size);
  std::uint8_t* context = modify.at<prm::ModifyHcaVportContextInput::hca_vport_context>();
  prm::HcaVportContext::cap_mask1::set(context, ib::kPortCapIsSm);
  prm::HcaVportContext::cap_mask1_field_select::set(context, ib::kPortCapIsSm);
  driver.must(modify);
  EXPECT_NE(host.port->attributes().capability_mask & ib::kPortCapIsSm, 0U);
  prm::HcaVportContext::cap_mask1_field_select::set(context, ib::kPortCapTrap);
  EXPECT_EQ(driver.run(modify).syndrome,
            static_cast<std::uint32_t>(Syndrome::field_not_selectable));
}

TEST_F(PortTest, registers_tell_speed_mtu_and_lanes) {
  const CommandReply mtu = access(prm::RegisterId::pmtu, false, for_port(prm::PmtuRegister::size));
  ASSERT_TRUE(mtu.ok());
  EXPECT_EQ(prm::PmtuRegister::max_mtu::get(data_of(mtu)), 4096U);
  const CommandReply speed =
      access(prm::RegisterId::ptys, false, for_port(prm::PtysRegister::size));
  ASSERT_TRUE(speed.ok());
  EXPECT_EQ(prm::PtysRegister::ib_link_width_oper::get(data_of(speed)), 4U);
  EXPECT_NE(prm::PtysRegister::ib_proto_oper::get(data_of(speed)), 0U);
  const CommandReply lanes =
      access(prm::RegisterId::pvlc, false, for_port(prm::PvlcRegister::size));
  ASSERT_TRUE(lanes.ok());
  EXPECT_EQ(prm::PvlcRegister::vl_hw_cap::get(data_of(lanes)), 1U);
}

TEST_F(PortTest, register_errors) {
  EXPECT_EQ(access(static_cast<prm::RegisterId>(0x1234), false, for_port(16)).syndrome,
            static_cast<std::uint32_t>(Syndrome::unknown_register));
  EXPECT_EQ(access(prm::RegisterId::pmtu, false, for_port(16, 2)).syndrome,
            static_cast<std::uint32_t>(Syndrome::bad_port));
  EXPECT_EQ(access(prm::RegisterId::ptys, false, for_port(16)).status,
            CommandStatus::bad_input_length);
  EXPECT_EQ(access(prm::RegisterId::pmtu, true, for_port(16)).syndrome,
            static_cast<std::uint32_t>(Syndrome::register_read_only));
  EXPECT_TRUE(access(prm::RegisterId::host_endianness, true, std::vector<std::uint8_t>(16)).ok());
}

TEST_F(PortTest, node_description_is_written_and_read_back) {
  std::vector<std::uint8_t> text(64);
  std::memcpy(text.data(), "rack 7", 6);
  ASSERT_TRUE(access(prm::RegisterId::node_description, true, text).ok());
  const CommandReply reply =
      access(prm::RegisterId::node_description, false, std::vector<std::uint8_t>(64));
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(std::memcmp(data_of(reply), "rack 7", 6), 0);
}

TEST_F(PortTest, mad_ifc_reaches_the_agents_of_the_port) {
  CommandBuffer command(CommandOpcode::mad_ifc, prm::MadIfcInput::size, 3);
  command.set<prm::MadIfcInput::port>(1);
  std::uint8_t* mad = command.at<prm::MadIfcInput::mad>();
  ib::MadHeader::base_version::set(mad, 1);
  ib::MadHeader::mgmt_class::set(mad, 1);
  ib::MadHeader::class_version::set(mad, 1);
  ib::MadHeader::method::set(mad, 1);
  ib::MadHeader::attribute_id::set(mad, static_cast<unsigned>(ib::SmpAttribute::node_info));
  const CommandReply reply = driver.must(command, prm::MadIfcOutput::size);
  const std::uint8_t* response = prm::MadIfcOutput::response_mad_packet::at(reply.out.data());
  EXPECT_EQ(ib::MadHeader::method::get(response), 0x81U);
  EXPECT_EQ(ib::NodeInfo::node_guid::get(ib::Smp::data::at(response)), OneHost::kGuid);
  EXPECT_EQ(driver.run(command.set<prm::MadIfcInput::port>(2), prm::MadIfcOutput::size).syndrome,
            static_cast<std::uint32_t>(Syndrome::bad_port));
}

TEST_F(PortTest, mad_ifc_checks_the_m_key_unless_told_to_ignore_it) {
  constexpr std::uint64_t kKey = 0x1234;
  constexpr std::uint16_t kIgnore = 1;
  const auto port_info = [&](std::uint64_t method, std::uint16_t op_mod, std::uint64_t key) {
    CommandBuffer command(CommandOpcode::mad_ifc, prm::MadIfcInput::size, op_mod);
    command.set<prm::MadIfcInput::port>(1);
    std::uint8_t* mad = command.at<prm::MadIfcInput::mad>();
    ib::MadHeader::base_version::set(mad, 1);
    ib::MadHeader::mgmt_class::set(mad, 1);
    ib::MadHeader::class_version::set(mad, 1);
    ib::MadHeader::method::set(mad, method);
    ib::MadHeader::attribute_id::set(mad, static_cast<unsigned>(ib::SmpAttribute::port_info));
    ib::MadHeader::attribute_modifier::set(mad, 1);
    ib::Smp::m_key::set(mad, key);
    if (method == 2) {
      const CommandReply now = port_info_reply(driver);
      std::memcpy(ib::Smp::data::at(mad), ib::Smp::data::at(response_of(now)), 64);
      ib::PortInfo::m_key::set(ib::Smp::data::at(mad), kKey);
      ib::PortInfo::m_key_protect_bits::set(ib::Smp::data::at(mad), 2);
    }
    return driver.run(command, prm::MadIfcOutput::size);
  };
  ASSERT_TRUE(port_info(2, 0, 0).ok()) << "a port without M_Key takes any";
  const CommandReply refused = port_info(1, 0, 0);
  EXPECT_EQ(refused.status, CommandStatus::bad_packet);
  EXPECT_EQ(refused.syndrome, static_cast<std::uint32_t>(Syndrome::bad_m_key));
  EXPECT_TRUE(port_info(1, 0, kKey).ok());
  const CommandReply ignored = port_info(1, kIgnore, 0);
  ASSERT_TRUE(ignored.ok());
  const std::uint8_t* info = ib::Smp::data::at(response_of(ignored));
  EXPECT_EQ(ib::PortInfo::m_key::get(info), kKey);
  EXPECT_EQ(ib::PortInfo::m_key_violations::get(info), 1U) << "the one that was refused";
}

TEST_F(PortTest, a_link_that_goes_down_is_an_asynchronous_event) {
  host.step();  // the event that the port is active
  while (driver.poll_eq(driver.async_eq())) {
  }
  host.fabric.set_link("host", false);
  host.step();
  const auto event = driver.poll_eq(driver.async_eq());
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->type, static_cast<std::uint8_t>(prm::EventType::port_change));
  EXPECT_EQ(event->subtype, static_cast<std::uint8_t>(ib::PortEvent::down));
  EXPECT_EQ(prm::PortChangeEventData::port_num::get(event->data.data()), 1U);
}

}  // namespace
}  // namespace softhca::test
