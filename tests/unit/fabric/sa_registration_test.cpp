// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What ports register with the subnet administrator: multicast groups, services, events.
#include <gmock/gmock.h>

#include "hw-model/fabric/event_subscriptions.h"
#include "hw-model/fabric/multicast_groups.h"
#include "hw-model/fabric/sa_query.h"
#include "hw-model/fabric/service_registry.h"
#include "tests/unit/fabric/mad_fixture.h"

namespace softhca::fabric {
namespace {

using ib::MadMethod;
using ib::SaAttribute;
using Member = ib::McMemberRecord;
using Service = ib::ServiceRecord;
using testing::ElementsAre;

constexpr ib::Gid kBroadcast = {0xff, 0x12, 0x40, 0x1b, 0xff, 0xff, 0,    0,
                                0,    0,    0,    0,    0xff, 0xff, 0xff, 0xff};
constexpr ib::Gid kOtherGroup = {0xff, 0x12, 0x60, 0x1b, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7};
constexpr std::uint64_t kJoin = Member::kMgid | Member::kPortGid | Member::kJoinState;
constexpr std::uint64_t kCreate =
    kJoin | Member::kQkey | Member::kTclass | Member::kPkey | Member::kSl | Member::kFlowLabel;

class SaRegistrationTest : public MadTest {
 protected:
  Mad member(MadMethod method, std::uint64_t components, const ib::Gid& mgid,
             std::uint8_t join_state, const ib::Port& port) {
    Mad in = sa(method, SaAttribute::mc_member_record, components);
    put_gid(Member::mgid::at(sa_data(in)), mgid);
    put_gid(Member::port_gid::at(sa_data(in)), gid_of(port));
    Member::q_key::set(sa_data(in), 0xb1b);
    Member::p_key::set(sa_data(in), 0xffff);
    Member::join_state::set(sa_data(in), join_state);
    return in;
  }
  Mad join(const ib::Gid& mgid, std::uint8_t join_state = ib::kJoinFull,
           std::uint64_t components = kCreate) {
    return ask(member(MadMethod::set, components, mgid, join_state, *port_a));
  }
  Mad leave(const ib::Gid& mgid, std::uint8_t join_state = ib::kJoinFull) {
    return ask(member(MadMethod::remove, kJoin, mgid, join_state, *port_a));
  }
  /// What host a gets of a packet that b sends to the group.
  std::vector<std::uint32_t> received(std::uint16_t mlid, std::uint32_t psn) {
    a.packets.clear();
    port_b->send(packet_to(mlid, psn));
    settle();
    return psns(a);
  }
  Mad service(MadMethod method, std::uint64_t id) {
    Mad in = sa(method, SaAttribute::service_record,
                Service::kId | Service::kGid | Service::kPkey | Service::kLease | Service::kKey |
                    Service::kName);
    Service::service_id::set(sa_data(in), id);
    put_gid(Service::service_gid::at(sa_data(in)), gid_of(*port_a));
    Service::service_p_key::set(sa_data(in), 0xffff);
    Service::service_lease::set(sa_data(in), 100);
    Service::service_key::at(sa_data(in))[0] = 0x55;
    std::memcpy(Service::service_name::at(sa_data(in)), "printer", 8);
    return in;
  }
  Mad subscribe(std::uint16_t trap, bool on = true) {
    Mad in = sa(MadMethod::set, SaAttribute::inform_info);
    ib::InformInfo::is_generic::set(sa_data(in), 1);
    ib::InformInfo::subscribe::set(sa_data(in), on ? 1 : 0);
    ib::InformInfo::type::set(sa_data(in), 0xffff);
    ib::InformInfo::trap_number::set(sa_data(in), trap);
    return in;
  }
};

TEST_F(SaRegistrationTest, BroadcastGroupOfIpoibIsThere) {
  const Mad out = join(kBroadcast, ib::kJoinFull, kJoin);
  ASSERT_EQ(status(out), ib::kMadOk);
  EXPECT_EQ(Member::q_key::get(sa_data(out)), 0xb1bU);
  EXPECT_EQ(Member::mlid::get(sa_data(out)), 0xc000U);
  EXPECT_EQ(Member::mtu::get(sa_data(out)), 5U);
  EXPECT_EQ(Member::join_state::get(sa_data(out)), 1U);
}

TEST_F(SaRegistrationTest, PacketsFollowMembership) {
  EXPECT_THAT(received(0xc000, 1), ElementsAre());
  join(kBroadcast);
  EXPECT_THAT(received(0xc000, 2), ElementsAre(2U));
  EXPECT_EQ(status(leave(kBroadcast)), ib::kMadOk);
  EXPECT_THAT(received(0xc000, 3), ElementsAre());
}

TEST_F(SaRegistrationTest, MemberThatOnlySendsGetsNothing) {
  join(kBroadcast, ib::kJoinSendOnlyNon);
  EXPECT_THAT(received(0xc000, 1), ElementsAre());
  join(kBroadcast, ib::kJoinNon);
  EXPECT_THAT(received(0xc000, 2), ElementsAre(2U)) << "JoinStates add up";
}

TEST_F(SaRegistrationTest, GroupIsCreatedByAFullMemberWithAllParameters) {
  EXPECT_EQ(status(join(kOtherGroup, ib::kJoinFull, kJoin)), ib::kSaInsufficientComponents);
  EXPECT_EQ(status(join(kOtherGroup, ib::kJoinNon)), ib::kSaRequestInvalid);
  const Mad out = join(kOtherGroup);
  ASSERT_EQ(status(out), ib::kMadOk);
  EXPECT_EQ(Member::mlid::get(sa_data(out)), 0xc001U);
  EXPECT_EQ(Member::mtu::get(sa_data(out)), 5U);
  EXPECT_EQ(status(leave(kOtherGroup)), ib::kMadOk);
  EXPECT_EQ(status(leave(kOtherGroup)), ib::kSaRequestInvalid)
      << "it ended with its last full member";
}

TEST_F(SaRegistrationTest, GroupWithoutMgidGetsOne) {
  const Mad out = join(ib::Gid{}, ib::kJoinFull, kCreate & ~std::uint64_t{Member::kMgid});
  ASSERT_EQ(status(out), ib::kMadOk);
  EXPECT_EQ(Member::mgid::at(sa_data(out))[0], 0xff);
}

TEST_F(SaRegistrationTest, JoinMustFitTheGroup) {
  Mad in = member(MadMethod::set, kCreate, kBroadcast, ib::kJoinFull, *port_a);
  Member::q_key::set(sa_data(in), 0x77);
  EXPECT_EQ(status(ask(in)), ib::kSaRequestInvalid);
  in = member(MadMethod::set, kCreate, kBroadcast, 0, *port_a);
  EXPECT_EQ(status(ask(in)), ib::kSaRequestInvalid);
  in = member(MadMethod::set, kCreate, gid_of(*port_a), ib::kJoinFull, *port_a);
  EXPECT_EQ(status(ask(in)), ib::kSaRequestInvalid) << "not a multicast GID";
}

TEST_F(SaRegistrationTest, NobodyJoinsForAnother) {
  EXPECT_EQ(status(ask(member(MadMethod::set, kCreate, kBroadcast, ib::kJoinFull, *port_b))),
            ib::kSaRequestInvalid);
  auto forged =
      mad_packet(member(MadMethod::set, kCreate, kBroadcast, ib::kJoinFull, *port_b), kSwitchLid);
  forged->path.slid = kLidB;
  port_a->send(std::move(forged));
  settle();
  a.packets.clear();
  EXPECT_THAT(received(0xc000, 1), ElementsAre());
  port_a->send(packet_to(0xc000, 2));
  settle();
  for (const auto& packet : b.packets) EXPECT_NE(packet->path.dlid, 0xc000);
}

TEST_F(SaRegistrationTest, GroupsAreBounded) {
  ib::Gid mgid = kOtherGroup;
  std::uint64_t last = ib::kMadOk;
  unsigned made = 0;
  for (; last == ib::kMadOk && made < 5000; ++made) {
    mgid[14] = static_cast<std::uint8_t>(made >> 8);
    mgid[13] = static_cast<std::uint8_t>(made);
    last = status(join(mgid));
  }
  EXPECT_EQ(last, ib::kSaNoResources);
  EXPECT_EQ(made - 1, MulticastGroups::kMaxGroupsPerPort);
}

TEST_F(SaRegistrationTest, MembershipEndsWithTheLink) {
  join(kOtherGroup);
  fabric.set_link("a", false);
  settle();
  fabric.set_link("a", true);
  settle();
  EXPECT_THAT(received(0xc001, 1), ElementsAre());
  EXPECT_EQ(status(leave(kOtherGroup)), ib::kSaRequestInvalid);
}

TEST_F(SaRegistrationTest, MemberRecordsShowGroups) {
  join(kOtherGroup);
  EXPECT_EQ(ask_table(sa(MadMethod::get_table, SaAttribute::mc_member_record)).size(), 2U);
  Mad in = member(MadMethod::get, Member::kMgid, kOtherGroup, 0, *port_a);
  EXPECT_EQ(Member::mlid::get(sa_data(ask(in))), 0xc001U);
}

TEST_F(SaRegistrationTest, TrustedReaderSeesTheMembers) {
  join(kOtherGroup);
  Mad in = sa(MadMethod::get_table, SaAttribute::mc_member_record, Member::kMgid);
  put_gid(Member::mgid::at(sa_data(in)), kOtherGroup);
  auto records = ask_table(in);
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(gid_at(Member::port_gid::at(records[0].data())), ib::Gid{});
  in = sa(MadMethod::get_table, SaAttribute::mc_member_record, Member::kMgid);
  put_gid(Member::mgid::at(sa_data(in)), kOtherGroup);
  ib::SaMad::sm_key::set(in.data(), 1);
  records = ask_table(in);
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(gid_at(Member::port_gid::at(records[0].data())), gid_of(*port_a));
}

TEST_F(SaRegistrationTest, PathToAGroupIsItsMlid) {
  Mad in =
      sa(MadMethod::get, SaAttribute::path_record, ib::PathRecord::kDgid | ib::PathRecord::kSlid);
  put_gid(ib::PathRecord::dgid::at(sa_data(in)), kBroadcast);
  ib::PathRecord::slid::set(sa_data(in), kLidA);
  EXPECT_EQ(ib::PathRecord::dlid::get(sa_data(ask(in))), 0xc000U);
}

TEST_F(SaRegistrationTest, ServiceIsRegisteredFoundAndRemoved) {
  ASSERT_EQ(status(ask(service(MadMethod::set, 42))), ib::kMadOk);
  Mad query = sa(MadMethod::get_table, SaAttribute::service_record, Service::kId);
  Service::service_id::set(sa_data(query), 42);
  auto records = ask_table(query);
  ASSERT_EQ(records.size(), 1U);
  EXPECT_STREQ(reinterpret_cast<const char*>(Service::service_name::at(records[0].data())),
               "printer");
  EXPECT_EQ(Service::service_key::at(records[0].data())[0], 0) << "the key is a secret";
  Mad remove = service(MadMethod::remove, 42);
  Service::service_key::at(sa_data(remove))[0] = 0x56;
  EXPECT_EQ(status(ask(remove)), ib::kSaRequestInvalid) << "wrong key";
  Mad removed = ask(service(MadMethod::remove, 42));
  EXPECT_EQ(status(removed), ib::kMadOk);
  EXPECT_EQ(method(removed), MadMethod::remove_response);
  EXPECT_TRUE(ask_table(query).empty());
}

TEST_F(SaRegistrationTest, ServiceEndsWithItsLease) {
  ask(service(MadMethod::set, 42));
  const Mad query = sa(MadMethod::get_table, SaAttribute::service_record);
  run_for(99'000'000'000);
  EXPECT_EQ(ask_table(query).size(), 1U);
  run_for(2'000'000'000);
  EXPECT_TRUE(ask_table(sa(MadMethod::get_table, SaAttribute::service_record)).empty());
}

TEST_F(SaRegistrationTest, ServicesOfAPortAreBounded) {
  for (std::uint64_t id = 1; id <= ServiceRegistry::kMaxServicesPerPort; ++id) {
    ASSERT_EQ(status(ask(service(MadMethod::set, id))), ib::kMadOk);
  }
  EXPECT_EQ(status(ask(service(MadMethod::set, 1000))), ib::kSaNoResources);
  EXPECT_EQ(status(ask(service(MadMethod::set, 1))), ib::kMadOk) << "renewed";
}

TEST_F(SaRegistrationTest, SubscriberHearsOfNewGroupsUntilItAnswers) {
  ASSERT_EQ(status(ask(subscribe(66))), ib::kMadOk);
  a.packets.clear();
  port_a->send(
      mad_packet(member(MadMethod::set, kCreate, kOtherGroup, ib::kJoinFull, *port_a), kSwitchLid));
  settle();
  ASSERT_EQ(a.packets.size(), 2U);
  Mad report = mad_of(*a.packets[1]);
  EXPECT_EQ(method(report), MadMethod::report);
  EXPECT_EQ(ib::Notice::trap_number::get(sa_data(report)), 66U);
  EXPECT_EQ(gid_at(ib::Notice::details::at(sa_data(report)) + 6), kOtherGroup);
  run_for(EventSubscriptions::kInterval);
  EXPECT_EQ(a.packets.size(), 3U) << "repeated";
  Header::method::set(report.data(), static_cast<std::uint8_t>(MadMethod::report_response));
  port_a->send(mad_packet(report, kSwitchLid));
  run_for(10 * EventSubscriptions::kInterval);
  EXPECT_EQ(a.packets.size(), 3U);
}

TEST_F(SaRegistrationTest, SubscriberHearsOfPortsThatGoUntilItUnsubscribes) {
  ask(subscribe(65));
  a.packets.clear();
  fabric.set_link("b", false);
  settle();
  EXPECT_EQ(a.packets.size(), 1U);
  EXPECT_EQ(status(ask(subscribe(65, false))), ib::kMadOk);
  EXPECT_EQ(status(ask(subscribe(65, false))), ib::kSaRequestInvalid);
}

TEST_F(SaRegistrationTest, SubscriptionsOfAPortAreBounded) {
  for (std::uint16_t trap = 0; trap < EventSubscriptions::kMaxPerPort; ++trap) {
    ASSERT_EQ(status(ask(subscribe(trap))), ib::kMadOk);
  }
  EXPECT_EQ(status(ask(subscribe(500))), ib::kSaNoResources);
}

}  // namespace
}  // namespace softhca::fabric
