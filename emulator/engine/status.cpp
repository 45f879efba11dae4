// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/engine/status.h"

#include <string>

#include <spdlog/fmt/fmt.h>
#include <nlohmann/json.hpp>

#include "emulator/engine/stall.h"

namespace softhca::emulator {
namespace {

using nlohmann::json;

const char* state_name(ib::PortState state) {
  switch (state) {
    case ib::PortState::down:
      return "DOWN";
    case ib::PortState::init:
      return "INIT";
    case ib::PortState::armed:
      return "ARMED";
    case ib::PortState::active:
      return "ACTIVE";
  }
  return "?";
}

/// Gb/s of one lane, by ibv_port_attr.active_speed.
double lane_rate(std::uint16_t speed) {
  switch (speed) {
    case 0x01:
      return 2.5;
    case 0x02:
      return 5;
    case 0x04:
    case 0x08:
      return 10;
    case 0x10:
      return 14;
    case 0x20:
      return 25;
    case 0x40:
      return 50;
    case 0x80:
      return 100;
    default:
      return 0;
  }
}

/// Lanes, by PortInfo.LinkWidthActive.
unsigned lanes(std::uint8_t width) {
  switch (width) {
    case 1:
      return 1;
    case 2:
      return 4;
    case 4:
      return 8;
    case 8:
      return 12;
    case 16:
      return 2;
    default:
      return 0;
  }
}

std::string hex(std::uint64_t guid) {
  return fmt::format("{:#018x}", guid);
}

json counters_status(const fabric::PortCounters& counters) {
  return json{{"xmit_packets", counters.xmit_packets()}, {"rcv_packets", counters.rcv_packets()},
              {"xmit_data", counters.xmit_data},         {"rcv_data", counters.rcv_data},
              {"xmit_discards", counters.xmit_discards}, {"xmit_wait", counters.xmit_wait},
              {"rcv_errors", counters.rcv_errors},       {"symbol_error", counters.symbol_error},
              {"link_downed", counters.link_downed},     {"vl15_dropped", counters.vl15_dropped}};
}

json port_status(const ib::PortAttributes& port) {
  return json{{"state", state_name(port.state)},
              {"phys_state", port.phys_state},
              {"lid", port.lid},
              {"lmc", port.lmc},
              {"sm_lid", port.sm_lid},
              {"mtu", 128U << port.active_mtu},
              {"rate_gbps", lane_rate(port.link_speed_active) * lanes(port.link_width_active)},
              {"port_guid", hex(port.port_guid)}};
}

json device_status(Device& device) {
  json status{{"name", device.host},
              {"socket", device.socket},
              {"connected", device.server->connected()},
              {"persistent", device.persistent},
              {"mapped_uars", device.mapped_uars},
              {"blue_flame", device.blue_flame},
              {"node_guid", hex(device.node_guid)},
              {"port", port_status(device.port->attributes())}};
  json function = json::parse(device.server->function().status_json(), nullptr, false);
  status["device"] = function.is_discarded() ? json::object() : std::move(function);
  return status;
}

}  // namespace

json hosts_status(DeviceSet& devices) {
  json hosts = json::array();
  for (auto& [name, device] : devices.devices()) hosts.push_back(device_status(device));
  for (const fabric::LinkStatus& link : devices.fabric().status()) {
    for (json& host : hosts) {
      if (host["name"] != link.name) continue;
      host["port"]["counters"] = counters_status(link.counters);
      host["port"]["cable"] = link.cable;
      host["port"]["link"] = link.up ? "up" : "down";
      host["port"]["waiting"] = link.waiting[0] + link.waiting[1];
    }
  }
  name_stalls(hosts);
  return hosts;
}

}  // namespace softhca::emulator
