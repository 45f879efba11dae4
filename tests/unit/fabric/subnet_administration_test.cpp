// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The subnet administrator: what it tells of the subnet, and how (IBA chapter 15, 13.6).
#include <gmock/gmock.h>

#include "hw-model/fabric/rmpp_sender.h"
#include "hw-model/fabric/sa_query.h"
#include "tests/unit/fabric/mad_fixture.h"

namespace softhca::fabric {
namespace {

using ib::MadMethod;
using ib::SaAttribute;
using Path = ib::PathRecord;

class SubnetAdministrationTest : public MadTest {
 protected:
  Mad path_query(std::uint64_t components, MadMethod method = MadMethod::get) {
    Mad in = sa(method, SaAttribute::path_record, components);
    put_gid(Path::sgid::at(sa_data(in)), gid_of(*port_a));
    put_gid(Path::dgid::at(sa_data(in)), gid_of(*port_b));
    Path::slid::set(sa_data(in), kLidA);
    Path::dlid::set(sa_data(in), kLidB);
    Path::p_key::set(sa_data(in), 0xffff);
    return in;
  }
};

TEST_F(SubnetAdministrationTest, ClassPortInfoSaysWhatItCan) {
  const Mad out = ask(sa(MadMethod::get, SaAttribute::class_port_info));
  EXPECT_EQ(status(out), ib::kMadOk);
  EXPECT_EQ(ib::ClassPortInfo::class_version::get(sa_data(out)), 2U);
  EXPECT_NE(ib::ClassPortInfo::capability_mask::get(sa_data(out)) & ib::kSaCapUdMulticast, 0U);
}

TEST_F(SubnetAdministrationTest, PathByGids) {
  const Mad out = ask(path_query(Path::kSgid | Path::kDgid | Path::kNumbPath | Path::kPkey));
  ASSERT_EQ(status(out), ib::kMadOk);
  EXPECT_EQ(method(out), MadMethod::get_response);
  const auto* data = sa_data(out);
  EXPECT_EQ(Path::slid::get(data), kLidA);
  EXPECT_EQ(Path::dlid::get(data), kLidB);
  EXPECT_EQ(Path::mtu::get(data), 5U);
  EXPECT_EQ(Path::rate::get(data), 16U) << "100 Gbit/s";
  EXPECT_EQ(Path::packet_life_time::get(data), 18U);
  EXPECT_EQ(Path::p_key::get(data), 0xffffU);
  EXPECT_EQ(Path::reversible::get(data), 1U);
  EXPECT_EQ(Path::mtu_selector::get(data), 2U);
}

TEST_F(SubnetAdministrationTest, PathByLidsNamesTheGids) {
  const Mad out = ask(path_query(Path::kSlid | Path::kDlid));
  ASSERT_EQ(status(out), ib::kMadOk);
  EXPECT_EQ(gid_at(Path::dgid::at(sa_data(out))), gid_of(*port_b));
}

TEST_F(SubnetAdministrationTest, PathThatDoesNotFitIsNoRecord) {
  const auto status_with = [&](std::uint64_t components, auto change) {
    Mad in = path_query(Path::kSlid | Path::kDlid | components);
    change(sa_data(in));
    return status(ask(in));
  };
  EXPECT_EQ(status_with(0, [](auto* data) { Path::dlid::set(data, 99); }), ib::kSaNoRecords);
  EXPECT_EQ(status_with(Path::kPkey, [](auto* data) { Path::p_key::set(data, 0x8005); }),
            ib::kSaNoRecords);
  const std::uint64_t mtu = Path::kMtuSelector | Path::kMtu;
  EXPECT_EQ(status_with(mtu, [](auto* data) { Path::mtu::set(data, 5); }), ib::kSaNoRecords)
      << "greater than 4096";
  EXPECT_EQ(status_with(mtu, [](auto* data) { Path::mtu::set(data, 4); }), ib::kMadOk);
  EXPECT_EQ(status_with(Path::kRateSelector | Path::kRate,
                        [](auto* data) {
                          Path::rate_selector::set(data, 1);
                          Path::rate::set(data, 3);
                        }),
            ib::kSaNoRecords)
      << "less than 10 Gbit/s";
}

TEST_F(SubnetAdministrationTest, GetTableOfPathsFromOnePort) {
  const auto records = ask_table(path_query(Path::kSlid, MadMethod::get_table));
  EXPECT_EQ(records.size(), 3U) << "to the switch, to itself, to the other";
}

TEST_F(SubnetAdministrationTest, NodeRecordsOfAllNodesTakeSeveralSegments) {
  const auto nodes = ask_table(sa(MadMethod::get_table, SaAttribute::node_record));
  ASSERT_EQ(nodes.size(), 3U);
  std::vector<std::uint64_t> types;
  for (const auto& node : nodes) {
    types.push_back(ib::NodeInfo::node_type::get(ib::NodeRecord::node_info::at(node.data())));
  }
  EXPECT_THAT(types, testing::ElementsAre(2U, 1U, 1U));
}

TEST_F(SubnetAdministrationTest, ComponentMaskSelectsRecords) {
  using Record = ib::PortInfoRecord;
  Mad in = sa(MadMethod::get_table, SaAttribute::port_info_record, Record::kCapabilityMask);
  ib::PortInfo::capability_mask::set(Record::port_info::at(sa_data(in)), ib::kPortCapIsSm);
  const auto records = ask_table(in);
  ASSERT_EQ(records.size(), 1U) << "the manager's port";
  EXPECT_EQ(Record::lid::get(records[0].data()), kSwitchLid);
}

TEST_F(SubnetAdministrationTest, LinksSwitchTablesAndManagersAreRecordsToo) {
  EXPECT_EQ(ask_table(sa(MadMethod::get_table, SaAttribute::link_record)).size(), 4U);
  EXPECT_EQ(ask_table(sa(MadMethod::get_table, SaAttribute::switch_info_record)).size(), 1U);
  EXPECT_EQ(ask_table(sa(MadMethod::get_table, SaAttribute::sm_info_record)).size(), 1U);
  EXPECT_EQ(ask_table(sa(MadMethod::get_table, SaAttribute::linear_fdb_record)).size(), 1U);
  EXPECT_EQ(ask_table(sa(MadMethod::get_table, SaAttribute::guid_info_record)).size(), 3U);
  EXPECT_GE(ask_table(sa(MadMethod::get_table, SaAttribute::pkey_record)).size(), 3U);
}

TEST_F(SubnetAdministrationTest, TableWithoutRecordsIsOneEmptySegment) {
  EXPECT_TRUE(ask_table(sa(MadMethod::get_table, SaAttribute::service_record)).empty());
}

TEST_F(SubnetAdministrationTest, GetOfSeveralRecordsIsRefused) {
  EXPECT_EQ(status(ask(sa(MadMethod::get, SaAttribute::node_record))), ib::kSaTooManyRecords);
  Mad in = sa(MadMethod::get, SaAttribute::node_record, ib::NodeRecord::kLid);
  ib::NodeRecord::lid::set(sa_data(in), kLidB);
  EXPECT_EQ(status(ask(in)), ib::kMadOk);
}

TEST_F(SubnetAdministrationTest, WhatItDoesNotKnowIsAnsweredWithAStatus) {
  EXPECT_EQ(status(ask(sa(MadMethod::get, static_cast<SaAttribute>(0x7777)))),
            ib::kMadUnsupportedMethodAttribute);
  EXPECT_EQ(status(ask(sa(MadMethod::send, SaAttribute::node_record))), ib::kMadUnsupportedMethod);
  Mad old = sa(MadMethod::get, SaAttribute::node_record);
  Header::class_version::set(old.data(), 1);
  EXPECT_EQ(status(ask(old)), ib::kMadBadVersion);
}

TEST_F(SubnetAdministrationTest, UnacknowledgedSegmentIsRepeatedAndThenGivenUp) {
  a.packets.clear();
  port_a->send(mad_packet(sa(MadMethod::get_table, SaAttribute::node_record), kSwitchLid));
  settle();
  EXPECT_EQ(a.packets.size(), 1U) << "the window starts with one segment";
  run_for(2 * RmppSender::kAckTimeout);
  EXPECT_EQ(a.packets.size(), 3U);
  run_for(100 * RmppSender::kAckTimeout);
  EXPECT_EQ(a.packets.size(), RmppSender::kTries);
  EXPECT_EQ(fabric.next_deadline(), kNever);
}

TEST_F(SubnetAdministrationTest, AckOfWhatWasNotSentIsIgnoredAndAbortEndsTheTransfer) {
  const Mad query = sa(MadMethod::get_table, SaAttribute::node_record);
  ask(query);
  Mad control = query;
  ib::Rmpp::active::set(control.data(), 1);
  ib::Rmpp::type::set(control.data(), static_cast<std::uint8_t>(ib::RmppType::ack));
  ib::Rmpp::segment_number::set(control.data(), 0xffffffff);
  ib::Rmpp::new_window_last::set(control.data(), 0xffffffff);
  EXPECT_FALSE(try_ask(control, kSwitchLid));
  ib::Rmpp::type::set(control.data(), static_cast<std::uint8_t>(ib::RmppType::abort));
  EXPECT_FALSE(try_ask(control, kSwitchLid));
  EXPECT_EQ(fabric.next_deadline(), kNever);
}

TEST_F(SubnetAdministrationTest, TransfersAreBounded) {
  for (std::size_t i = 0; i < RmppSender::kMaxTransfers; ++i) {
    port_a->send(mad_packet(sa(MadMethod::get_table, SaAttribute::node_record), kSwitchLid));
  }
  settle();
  EXPECT_EQ(status(ask(sa(MadMethod::get_table, SaAttribute::node_record))), ib::kSaNoResources);
}

}  // namespace
}  // namespace softhca::fabric
