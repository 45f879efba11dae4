// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/engine/stall.h"

#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>

#include <nlohmann/json.hpp>

namespace softhca::emulator {
namespace {

using nlohmann::json;

/// A host as far as a QP of another one depends on it.
struct Peer {
  std::string name;
  std::uint32_t last_lid = 0;
  std::string trouble;  ///< What keeps its port from the fabric; empty: nothing.
  std::unordered_map<std::uint32_t, std::string> qp_states;
};

const json& member(const json& object, const char* name) {
  static const json kNothing = json::object();
  const auto found = object.find(name);
  return found == object.end() ? kNothing : *found;
}

std::string trouble_of_port(const std::string& name, const json& port) {
  if (!port.value("cable", true)) {
    return "the cable of " + name + " is unplugged (`softhca ctl link " + name + " up`)";
  }
  if (port.value("link", "up") == "down") return "the link of " + name + " is down";
  const std::string state = port.value("state", "");
  if (state != "ACTIVE") return "the port of " + name + " is " + state + ", not ACTIVE";
  return {};
}

/// By the first LID of each host's port.
using Peers = std::map<std::uint32_t, Peer>;

Peers peers_of(const json& hosts) {
  Peers peers;
  for (const json& host : hosts) {
    const json& port = member(host, "port");
    const std::uint32_t lid = port.value("lid", 0U);
    if (lid == 0) continue;
    Peer peer;
    peer.name = host.value("name", "");
    peer.last_lid = lid + (1U << (port.value("lmc", 0U) & 7U)) - 1;
    peer.trouble = trouble_of_port(peer.name, port);
    for (const json& qp : member(member(host, "device"), "qps")) {
      peer.qp_states.emplace(qp.value("qpn", 0U), qp.value("state", ""));
    }
    peers.emplace(lid, std::move(peer));
  }
  return peers;
}

/// Why a peer does not answer; empty: nothing is known against it.
std::string trouble_of_peer(const Peers& peers, std::uint32_t lid, std::uint32_t qpn) {
  const auto after = peers.upper_bound(lid);
  const auto found = after == peers.begin() ? peers.end() : std::prev(after);
  if (found == peers.end() || lid > found->second.last_lid) {
    return "no host has LID " + std::to_string(lid);
  }
  const Peer& peer = found->second;
  if (!peer.trouble.empty()) return peer.trouble;
  const auto state = peer.qp_states.find(qpn);
  if (state == peer.qp_states.end()) return peer.name + " has no QP " + std::to_string(qpn);
  for (const char* answers : {"RTR", "RTS", "SQD", "SQE"}) {
    if (state->second == answers) return {};
  }
  return "QP " + std::to_string(qpn) + " of " + peer.name + " is in state " + state->second;
}

}  // namespace

void name_stalls(json& hosts) {
  const Peers peers = peers_of(hosts);
  for (json& host : hosts) {
    const auto device = host.find("device");
    if (device == host.end() || !device->contains("qps")) continue;
    for (json& qp : (*device)["qps"]) {
      const std::string cause = qp.value("stall_cause", "");
      std::string found;
      if (cause == "port") found = trouble_of_port(host.value("name", ""), member(host, "port"));
      if (cause == "peer") {
        found = trouble_of_peer(peers, qp.value("dlid", 0U), qp.value("remote_qpn", 0U));
      }
      if (!found.empty()) qp["stall"] = std::move(found);
    }
  }
}

}  // namespace softhca::emulator
