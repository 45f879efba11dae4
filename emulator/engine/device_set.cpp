// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/engine/device_set.h"

#include <algorithm>
#include <cerrno>
#include <system_error>

#include <spdlog/spdlog.h>
#include <unistd.h>

#include "emulator/engine/guid.h"
#include "emulator/runtime/paths.h"
#include "emulator/vfio-user/unix_socket.h"

namespace softhca::emulator {

using runtime::Done;
using runtime::Error;
using runtime::Result;

DeviceSet::DeviceSet(Config config, EngineClock& clock)
    : config_(std::move(config)), clock_(clock), fabric_(clock) {}

DeviceSet::~DeviceSet() {
  removed_ = nullptr;  // whoever wanted to know may be gone
  while (!devices_.empty()) remove(devices_.begin());
}

Device* DeviceSet::find(std::string_view host) {
  const auto entry = devices_.find(host);
  return entry == devices_.end() ? nullptr : &entry->second;
}

ib::Port* DeviceSet::plug_in(const AttachRequest& request, std::uint64_t& node_guid) {
  constexpr unsigned kAttempts = 8;
  for (unsigned attempt = 0; attempt < kAttempts; ++attempt) {
    node_guid = request.node_guid != 0 ? request.node_guid
                                       : host_guid(config_.fabric, request.host, attempt);
    fabric::HostConfig config;
    config.name = request.host;
    config.node_guid = node_guid;
    ib::Port* port = fabric_.attach(config);
    if (port != nullptr || request.node_guid != 0) return port;
  }
  return nullptr;
}

Result<Device*> DeviceSet::attach(const AttachRequest& request) {
  if (!runtime::is_valid_name(request.host)) {
    return Error{EINVAL,
                 "bad host name '" + request.host + "': 1 to 64 letters, digits, '_', '.', '-'"};
  }
  if (Device* device = find(request.host); device != nullptr) {
    const bool same = device->mapped_uars == request.mapped_uars &&
                      device->blue_flame == request.blue_flame &&
                      (request.node_guid == 0 || request.node_guid == device->node_guid);
    if (same) {
      device->persistent |= request.persistent;
      device->was_connected = false;  // whoever asks gets the time of a first connection
      if (device->unused_since != kNever) device->unused_since = clock_.now();
      return device;
    }
    if (device->server->connected()) {
      return Error{EBUSY, "host " + request.host + " is attached with other properties and in use"};
    }
    remove(devices_.find(request.host));
  }

  const auto paths = runtime::make_host_folder(config_.fabric, request.host);
  if (!paths) return paths.error();
  // The fabric is ours alone (its lock): whatever has this name was left by somebody dead.
  ::unlink(paths.value().device_socket.c_str());
  auto listening = vfio_user::listen_unix(paths.value().device_socket);
  if (!listening) return Error{listening.error().code, listening.error().message};

  Device device;
  device.host = request.host;
  device.socket = paths.value().device_socket;
  device.mapped_uars = request.mapped_uars;
  device.blue_flame = request.blue_flame;
  device.persistent = request.persistent;
  device.port = plug_in(request, device.node_guid);
  if (device.port == nullptr) {
    ::unlink(device.socket.c_str());
    if (request.node_guid != 0) return Error{EEXIST, "node GUID is taken, or the fabric is full"};
    return Error{ENOSPC, "the fabric is full"};
  }
  FunctionConfig function;
  function.node_guid = device.node_guid;
  function.mapped_uars = request.mapped_uars;
  function.blue_flame = request.blue_flame;
  try {
    device.server = std::make_unique<DeviceServer>(std::move(function), *device.port, clock_,
                                                   std::move(*listening),
                                                   [host = request.host](const std::string& line) {
                                                     spdlog::info("host {}: {}", host, line);
                                                   });
  } catch (const std::system_error& error) {
    fabric_.detach(request.host);
    ::unlink(device.socket.c_str());
    return Error{error.code().value(), "host " + request.host + ": " + error.what()};
  }
  fabric_.connect(device.host, &device.server->function());
  device.id = next_id_++;
  device.unused_since = clock_.now();
  spdlog::info("host {}: attached, node GUID {:#018x}", request.host, device.node_guid);
  return &devices_.emplace(request.host, std::move(device)).first->second;
}

void DeviceSet::remove(std::map<std::string, Device, std::less<>>::iterator entry) {
  Device& device = entry->second;
  fabric_.connect(device.host, nullptr);
  ::unlink(device.socket.c_str());
  device.server.reset();  // before the port that its function sends into
  fabric_.detach(device.host);
  spdlog::info("host {}: detached", device.host);
  if (removed_) removed_(device.host);
  devices_.erase(entry);
}

Result<Done> DeviceSet::detach(std::string_view host) {
  const auto entry = devices_.find(host);
  if (entry == devices_.end()) return Error{ENOENT, "no such host"};
  remove(entry);
  return Done{};
}

Nanoseconds DeviceSet::removal_time(const Device& device) const {
  if (device.persistent || device.unused_since == kNever) return kNever;
  return device.unused_since +
         (device.was_connected ? config_.reconnect_timeout : config_.first_connect_timeout);
}

bool DeviceSet::remove_unused() {
  const Nanoseconds now = clock_.now();
  bool removed = false;
  for (auto entry = devices_.begin(); entry != devices_.end();) {
    const auto current = entry++;
    Device& device = current->second;
    if (device.server->connected()) {
      device.was_connected = true;
      device.unused_since = kNever;
    } else if (device.unused_since == kNever) {
      device.unused_since = now;
    }
    if (now < removal_time(device)) continue;
    spdlog::info("host {}: nobody uses the device", device.host);
    remove(current);
    removed = true;
  }
  return removed;
}

Nanoseconds DeviceSet::next_removal() const {
  Nanoseconds earliest = kNever;
  for (const auto& [name, device] : devices_) {
    earliest = std::min(earliest, removal_time(device));
  }
  return earliest;
}

}  // namespace softhca::emulator
