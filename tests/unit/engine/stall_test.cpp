// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/engine/stall.h"

#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

// What `softhca status` says of a QP that stalls because of somebody else.
namespace softhca::emulator {
namespace {

using nlohmann::json;

constexpr char kOfTheDevice[] = "waiting for acknowledges of the peer";

json host(const std::string& name, unsigned lid) {
  return {
      {"name", name},
      {"port", {{"state", "ACTIVE"}, {"lid", lid}, {"lmc", 0}, {"cable", true}, {"link", "up"}}},
      {"device", {{"qps", json::array()}}}};
}

/// QP 64 of beta (LID 3) waits for QP 65 of alpha (LID 2).
class Stall : public ::testing::Test {
 protected:
  Stall() {
    qps("alpha").push_back({{"qpn", 65}, {"state", "RTS"}, {"stall_cause", ""}, {"stall", ""}});
    qps("beta").push_back({{"qpn", 64},
                           {"state", "RTS"},
                           {"dlid", 2},
                           {"remote_qpn", 65},
                           {"stall_cause", "peer"},
                           {"stall", kOfTheDevice}});
  }
  json& of(const std::string& name) { return hosts[name == "alpha" ? 0 : 1]; }
  json& qps(const std::string& name) { return of(name)["device"]["qps"]; }
  std::string reason() {
    name_stalls(hosts);
    return qps("beta")[0]["stall"];
  }

  json hosts = json::array({host("alpha", 2), host("beta", 3)});
};

TEST_F(Stall, WithNothingWrongTheDeviceKnowsBest) {
  EXPECT_EQ(reason(), kOfTheDevice);
  EXPECT_EQ(qps("alpha")[0]["stall"], "");
}

TEST_F(Stall, AnUnpluggedCableOfThePeerIsNamed) {
  of("alpha")["port"].update({{"cable", false}, {"link", "down"}, {"state", "DOWN"}});
  EXPECT_EQ(reason(), "the cable of alpha is unplugged (`softhca ctl link alpha up`)");
}

TEST_F(Stall, AnUnpluggedCableOfItsOwnIsNamed) {
  of("beta")["port"].update({{"cable", false}, {"link", "down"}, {"state", "DOWN"}});
  qps("beta")[0]["stall_cause"] = "port";
  EXPECT_EQ(reason(), "the cable of beta is unplugged (`softhca ctl link beta up`)");
}

TEST_F(Stall, APortThatIsNotActiveIsNamed) {
  of("alpha")["port"]["state"] = "ARMED";
  EXPECT_EQ(reason(), "the port of alpha is ARMED, not ACTIVE");
}

TEST_F(Stall, ALinkThatAManagerTookDownIsNamed) {
  of("alpha")["port"].update({{"link", "down"}, {"state", "DOWN"}});
  EXPECT_EQ(reason(), "the link of alpha is down");
}

TEST_F(Stall, ALidThatNobodyHasIsNamed) {
  for (const unsigned lid : {0U, 1U, 4U, 0xffffU}) {
    qps("beta")[0].update({{"dlid", lid}, {"stall", ""}});
    EXPECT_EQ(reason(), "no host has LID " + std::to_string(lid));
  }
}

TEST_F(Stall, AnyLidOfAPortIsItsHost) {
  of("alpha")["port"].update({{"lid", 8}, {"lmc", 2}, {"cable", false}});
  qps("beta")[0]["dlid"] = 11;
  EXPECT_NE(reason().find("cable of alpha"), std::string::npos);
  qps("beta")[0]["dlid"] = 12;
  EXPECT_EQ(reason(), "no host has LID 12");
}

TEST_F(Stall, APeerThatIsGoneOrInErrorIsNamed) {
  qps("alpha")[0]["state"] = "ERR";
  EXPECT_EQ(reason(), "QP 65 of alpha is in state ERR");
  qps("alpha").clear();
  EXPECT_EQ(reason(), "alpha has no QP 65");
}

TEST_F(Stall, WhatAQpDoesToItselfIsNobodysFault) {
  of("alpha")["port"]["cable"] = false;
  qps("beta")[0].update({{"stall_cause", "itself"}, {"stall", "in error state"}});
  EXPECT_EQ(reason(), "in error state");
}

TEST_F(Stall, HostsOfWhichLittleIsKnownAreNoMistake) {
  hosts.push_back(json{{"name", "gamma"}});
  hosts.push_back(json{{"name", "delta"}, {"device", json::object()}});
  EXPECT_EQ(reason(), kOfTheDevice);
}

}  // namespace
}  // namespace softhca::emulator
