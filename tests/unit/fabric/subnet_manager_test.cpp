// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Hand-over between the built-in subnet manager and one on a host (IBA 14.4.1).
#include <gmock/gmock.h>

#include "hw-model/fabric/subnet.h"
#include "hw-model/fabric/subnet_manager.h"
#include "tests/unit/fabric/mad_fixture.h"

namespace softhca::fabric {
namespace {

using ib::MadMethod;
using ib::SmpAttribute;
using ib::SmState;

/// Host b runs a subnet manager: what it says of itself, and what it was asked.
class OtherManager final : public ib::PortClient {
 public:
  explicit OtherManager(ib::Port& port) : port_(port) {}

  void receive(ib::Packet& packet) override {
    using Header = ib::MadHeader;
    if (packet.payload.size() != ib::kMadSize) return;
    auto* mad = reinterpret_cast<std::uint8_t*>(packet.payload.bytes());
    const auto method = static_cast<MadMethod>(Header::method::get(mad));
    const auto attribute = static_cast<SmpAttribute>(Header::attribute_id::get(mad));
    if (attribute == SmpAttribute::notice && method == MadMethod::trap) {
      ++traps;
      last_trap = packet.payload;
      return;
    }
    if (attribute != SmpAttribute::sm_info || !alive) return;
    ++questions;
    if (method == MadMethod::set) {
      controls.push_back(static_cast<ib::SmControl>(Header::attribute_modifier::get(mad)));
      if (controls.back() == ib::SmControl::handover) state = SmState::master;
    }
    std::uint8_t* data = ib::Smp::data::at(mad);
    std::memset(data, 0, 64);
    ib::SmInfo::guid::set(data, 0xb);
    ib::SmInfo::priority::set(data, priority);
    ib::SmInfo::sm_state::set(data, static_cast<std::uint8_t>(state));
    Header::method::set(mad, static_cast<std::uint8_t>(MadMethod::get_response));
    ib::Smp::direction::set(mad, 1);
    // The port's own hops: received at the end of the route, sent back through it.
    EXPECT_EQ(ib::Smp::hop_pointer::get(mad), 1U);
    ib::Smp::return_path::at(mad)[1] = 1;
    packet.path.dlid = ib::kPermissiveLid;
    packet.path.slid = 0;
    port_.send(std::make_unique<ib::Packet>(packet));
  }
  void port_ready() override {}
  void port_event(ib::PortEvent event) override { events.push_back(event); }
  bool owns_special_qp(std::uint32_t) const override { return true; }

  bool alive = true;
  std::uint8_t priority = 0;
  SmState state = SmState::discovering;
  unsigned questions = 0;
  unsigned traps = 0;
  ib::Payload last_trap;
  std::vector<ib::SmControl> controls;
  std::vector<ib::PortEvent> events;

 private:
  ib::Port& port_;
};

class SubnetManagerTest : public MadTest {
 protected:
  SubnetManagerTest() : other(*port_b) {
    fabric.connect("b", &other);
    settle();
    other.events.clear();
  }
  ~SubnetManagerTest() override { fabric.connect("b", nullptr); }

  void start_other() {
    const auto mask = port_b->attributes().capability_mask;
    port_b->set_capability_mask(mask | ib::kPortCapIsSm);
    settle();
  }
  void stop_other() {
    const auto mask = port_b->attributes().capability_mask;
    port_b->set_capability_mask(mask & ~ib::kPortCapIsSm);
    settle();
  }
  /// Until the built-in manager has handed over.
  void hand_over() {
    start_other();
    other.state = SmState::standby;
    run_for(SubnetManager::kPollInterval);
    ASSERT_EQ(built_in_state(), SmState::standby);
  }
  Mad sm_info(MadMethod method = MadMethod::get, std::uint32_t control = 0) {
    return ask(smp(method, SmpAttribute::sm_info, control));
  }
  SmState built_in_state() {
    return static_cast<SmState>(ib::SmInfo::sm_state::get(smp_data(sm_info())));
  }

  OtherManager other;
};

TEST_F(SubnetManagerTest, IsMasterWithTheLowestPrecedence) {
  const Mad out = sm_info();
  EXPECT_EQ(built_in_state(), SmState::master);
  EXPECT_EQ(ib::SmInfo::priority::get(smp_data(out)), 0U);
  EXPECT_GT(ib::SmInfo::guid::get(smp_data(out)), 0xfe00000000000000U)
      << "among equal priorities the lower GUID wins";
}

TEST_F(SubnetManagerTest, AsksAManagerAtOnceWhenItShowsItself) {
  EXPECT_EQ(other.questions, 0U);
  start_other();
  EXPECT_EQ(other.questions, 1U);
  EXPECT_EQ(built_in_state(), SmState::master) << "one that is discovering is left alone";
}

TEST_F(SubnetManagerTest, HandsOverToAStandbyManager) {
  hand_over();
  EXPECT_THAT(other.controls, testing::ElementsAre(ib::SmControl::handover));
  EXPECT_EQ(other.state, SmState::master);
}

TEST_F(SubnetManagerTest, HandsOverToAManagerThatAlreadyIsMaster) {
  other.state = SmState::master;
  start_other();
  EXPECT_EQ(built_in_state(), SmState::standby);
}

TEST_F(SubnetManagerTest, YieldsToAManagerThatWritesTheForwardingTable) {
  start_other();
  auto set = smp(MadMethod::set, SmpAttribute::linear_forwarding_table, 5);
  port_b->send(mad_packet(set, kSwitchLid));
  settle();
  EXPECT_EQ(built_in_state(), SmState::standby);
}

TEST_F(SubnetManagerTest, ToolsThatSetAPortDoNotDeposeIt) {
  Mad info = ask(smp(MadMethod::get, SmpAttribute::port_info, 2));
  Mad set = smp(MadMethod::set, SmpAttribute::port_info, 2);
  std::memcpy(smp_data(set), smp_data(info), 64);
  ib::PortInfo::port_state::set(smp_data(set), 0);
  ask(set);
  ask(smp(MadMethod::set, SmpAttribute::linear_forwarding_table, 5));
  EXPECT_EQ(built_in_state(), SmState::master) << "host a runs no manager";
}

TEST_F(SubnetManagerTest, StandingByItConfiguresNothing) {
  hand_over();
  RecordingHost c;
  ib::Port* port_c = plug("c", 0xc, c);
  ASSERT_NE(port_c, nullptr);
  settle();
  EXPECT_EQ(port_c->attributes().state, ib::PortState::init);
  EXPECT_EQ(port_c->attributes().lid, 0);
}

TEST_F(SubnetManagerTest, TrapOfALinkChangeIsRepeatedUntilRepressed) {
  hand_over();
  Mad info = ask(smp(MadMethod::get, SmpAttribute::port_info, 0));
  Mad set = smp(MadMethod::set, SmpAttribute::port_info, 0);
  std::memcpy(smp_data(set), smp_data(info), 64);
  ib::PortInfo::port_state::set(smp_data(set), 0);
  ib::PortInfo::master_sm_lid::set(smp_data(set), kLidB);
  ask(set);
  RecordingHost c;
  plug("c", 0xc, c);
  run_for(1);
  EXPECT_EQ(other.traps, 1U);
  run_for(1'500'000'000);
  EXPECT_EQ(other.traps, 2U);
  Mad repress{};
  std::memcpy(repress.data(), other.last_trap.data(), repress.size());
  Header::method::set(repress.data(), static_cast<std::uint8_t>(MadMethod::trap_repress));
  port_b->send(mad_packet(repress, kSwitchLid));
  settle();
  run_for(10'000'000'000);
  EXPECT_EQ(other.traps, 2U);
}

TEST_F(SubnetManagerTest, TakesOverWhenTheMasterEnds) {
  hand_over();
  a.events.clear();
  stop_other();
  EXPECT_EQ(built_in_state(), SmState::master);
  EXPECT_THAT(a.events, testing::Contains(ib::PortEvent::client_reregister))
      << "groups and services are to be registered again";
  EXPECT_EQ(port_a->attributes().lid, kLidA);
  EXPECT_EQ(port_a->attributes().state, ib::PortState::active);
}

TEST_F(SubnetManagerTest, TakesOverWhenTheMastersPortGoesAway) {
  hand_over();
  fabric.set_link("b", false);
  run_for(SubnetManager::kPollInterval);
  EXPECT_EQ(built_in_state(), SmState::master);
}

TEST_F(SubnetManagerTest, TakesOverWhenTheMastersHostIsDetached) {
  hand_over();
  fabric.detach("b");
  run_for(SubnetManager::kPollInterval);
  EXPECT_EQ(built_in_state(), SmState::master);
}

TEST_F(SubnetManagerTest, TakesOverWhenTheMasterNoLongerAnswers) {
  hand_over();
  run_for(20 * SubnetManager::kPollInterval);
  EXPECT_EQ(built_in_state(), SmState::standby) << "as long as it answers";
  other.alive = false;
  run_for(3 * SubnetManager::kPollInterval);
  EXPECT_EQ(built_in_state(), SmState::standby) << "some answers may be lost";
  run_for((SubnetManager::kPatience + 2) * SubnetManager::kPollInterval);
  EXPECT_EQ(built_in_state(), SmState::master);
}

TEST_F(SubnetManagerTest, TakesOverWhatTheOtherLeft) {
  hand_over();
  RecordingHost c;
  ib::Port* port_c = plug("c", 0xc, c);
  // The other manager has wiped the routes and left a port unconfigured.
  Mad wipe = smp(MadMethod::set, SmpAttribute::linear_forwarding_table, 0);
  std::memset(smp_data(wipe), 0xff, 64);
  EXPECT_FALSE(try_ask(wipe, kSwitchLid)) << "not even a route to the asker is left";
  stop_other();
  EXPECT_EQ(port_c->attributes().state, ib::PortState::active);
  EXPECT_NE(port_c->attributes().lid, 0);
  a.packets.clear();
  port_c->send(packet_to(kLidA, 5));
  settle();
  EXPECT_THAT(psns(a), testing::ElementsAre(5U));
}

TEST_F(SubnetManagerTest, OnlyAManagerThatIsMasterMayControlIt) {
  Mad in = smp(MadMethod::set, SmpAttribute::sm_info,
               static_cast<std::uint32_t>(ib::SmControl::disable));
  ib::SmInfo::sm_state::set(smp_data(in), static_cast<std::uint8_t>(SmState::master));
  EXPECT_EQ(status(ask(in)), ib::kMadInvalidField) << "host a runs no manager";
  EXPECT_EQ(built_in_state(), SmState::master);
}

TEST_F(SubnetManagerTest, TrapIsRepressedAndMakesItLookAtOtherManagers) {
  start_other();
  const unsigned before = other.questions;
  const Mad trap = smp(MadMethod::trap, SmpAttribute::notice);
  EXPECT_EQ(method(ask(trap)), MadMethod::trap_repress);
  EXPECT_EQ(other.questions, before + 1);
}

TEST_F(SubnetManagerTest, AnswersThatNobodyAskedForChangeNothing) {
  start_other();
  Mad answer = directed(MadMethod::get_response, SmpAttribute::sm_info, {2});
  ib::Smp::direction::set(answer.data(), 1);
  ib::Smp::hop_pointer::set(answer.data(), 1);
  ib::SmInfo::sm_state::set(smp_data(answer), static_cast<std::uint8_t>(SmState::master));
  port_a->send(mad_packet(answer, ib::kPermissiveLid));
  settle();
  EXPECT_EQ(built_in_state(), SmState::master);
}

}  // namespace
}  // namespace softhca::fabric
