// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/engine/commands.h"

#include <cerrno>
#include <charconv>
#include <optional>
#include <string>

#include <spdlog/spdlog.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include "emulator/engine/status.h"
#include "emulator/runtime/logging.h"
#include "emulator/runtime/version.h"

namespace softhca::emulator {
namespace {

using nlohmann::json;

json agreed() {
  return json{{"ok", true}};
}

json refusal(const runtime::Error& error) {
  return emulator::refusal(error.code, error.message);
}

/// A GUID as number or as hexadecimal text; nullopt if it is neither.
std::optional<std::uint64_t> guid_of(const json& value) {
  if (value.is_number_unsigned()) return value.get<std::uint64_t>();
  if (!value.is_string()) return std::nullopt;
  const auto& text = value.get_ref<const std::string&>();
  const std::size_t start = text.starts_with("0x") ? 2 : 0;
  std::uint64_t guid = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + start, end, guid, 16);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return guid;
}

}  // namespace

Commands::Commands(DeviceSet& devices, Captures& captures, std::function<void()> stop)
    : devices_(devices), captures_(captures), stop_(std::move(stop)) {}

json Commands::answer(const ControlServer::Request& request) {
  const json& object = request.object;
  const std::string command = object.value("command", "");
  if (command == "ping") return ping();
  if (command == "attach") return attach(object);
  if (command == "detach") return detach(object);
  if (command == "persist") return persist(object);
  if (command == "status") return status();
  if (command == "link") return link(object);
  if (command == "capture") return capture(request);
  if (command == "log-level") return log_level(object);
  if (command == "shutdown") return shutdown();
  return emulator::refusal(ENOSYS, "unknown command");
}

json Commands::ping() const {
  json reply = agreed();
  reply["version"] = runtime::kVersion;
  reply["fabric"] = devices_.fabric_name();
  reply["pid"] = ::getpid();
  return reply;
}

json Commands::no_such_host(const std::string& host) const {
  std::string known;
  for (const auto& [name, device] : devices_.devices()) known += (known.empty() ? "" : ", ") + name;
  return emulator::refusal(ENOENT, "no host '" + host + "' in fabric " + devices_.fabric_name() +
                                       (known.empty() ? "; it has none" : "; it has: " + known));
}

json Commands::attach(const json& request) {
  DeviceSet::AttachRequest attach;
  attach.host = request.value("host", "");
  attach.mapped_uars = request.value("mapped_uars", false);
  attach.blue_flame = request.value("blue_flame", false);
  attach.persistent = request.value("persistent", false);
  if (const auto guid = request.find("node_guid"); guid != request.end()) {
    const auto value = guid_of(*guid);
    if (!value || *value == 0) return emulator::refusal(EINVAL, "node_guid: not a GUID");
    attach.node_guid = *value;
  }
  const auto device = devices_.attach(attach);
  if (!device) return refusal(device.error());
  captures_.host_attached(attach.host);
  json reply = agreed();
  reply["socket"] = device.value()->socket;
  reply["node_guid"] = device.value()->node_guid;
  return reply;
}

json Commands::detach(const json& request) {
  const std::string host = request.value("host", "");
  if (!devices_.detach(host)) return no_such_host(host);
  return agreed();
}

json Commands::persist(const json& request) {
  const std::string host = request.value("host", "");
  Device* device = devices_.find(host);
  if (device == nullptr) return no_such_host(host);
  device->persistent = request.value("persistent", true);
  return agreed();
}

json Commands::status() {
  json reply = ping();
  reply["log_level"] = runtime::log_level();
  reply["hosts"] = hosts_status(devices_);
  return reply;
}

json Commands::link(const json& request) {
  const std::string name = request.value("name", "");
  const std::string state = request.value("state", "");
  if (state != "up" && state != "down") {
    return emulator::refusal(EINVAL, "state: expected up or down");
  }
  if (!devices_.fabric().set_link(name, state == "up")) return no_such_host(name);
  spdlog::info("link {}: {}", name, state);
  return agreed();
}

json Commands::capture(const ControlServer::Request& request) {
  const std::string link = request.object.value("link", "");
  if (request.descriptors.empty()) {
    return emulator::refusal(EINVAL, "capture: no descriptor came along");
  }
  if (!link.empty() && devices_.find(link) == nullptr) return no_such_host(link);
  auto started = captures_.start(request.connection, link, std::move(request.descriptors.front()));
  if (!started) return refusal(started.error());
  return agreed();
}

json Commands::log_level(const json& request) {
  if (const std::string level = request.value("level", ""); !level.empty()) {
    if (!runtime::set_log_level(level)) {
      return emulator::refusal(
          EINVAL,
          "no level '" + level + "'; there are: trace, debug, info, warn, error, critical, off");
    }
  }
  json reply = agreed();
  reply["level"] = runtime::log_level();
  return reply;
}

json Commands::shutdown() {
  spdlog::info("ending by command");
  stop_();
  return agreed();
}

}  // namespace softhca::emulator
