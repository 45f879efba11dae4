// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "emulator/device-server/device_server.h"
#include "emulator/engine/clock.h"
#include "emulator/engine/sweep_schedule.h"
#include "emulator/runtime/result.h"
#include "hw-model/fabric/fabric.h"

namespace softhca::emulator {

/// The HCA of one virtual host or VM: its port in the fabric and the server of its PCI function.
struct Device {
  std::uint64_t id = 0;  ///< Never used twice in one process.
  std::string host;
  std::string socket;  ///< Path of device.sock.
  std::uint64_t node_guid = 0;
  bool mapped_uars = false;
  bool blue_flame = false;
  bool persistent = false;  ///< Stays although no client is connected.
  ib::Port* port = nullptr;
  std::unique_ptr<DeviceServer> server;
  SweepSchedule sweep;
  bool watched = false;      ///< It is in the engine's event set.
  bool ready = false;        ///< Input waits.
  bool more_events = false;  ///< on_event() had not finished.
  bool was_connected = false;
  Nanoseconds waited_for_since = kNever;  ///< Since when its driver waits for a command.
  Nanoseconds unused_since = kNever;      ///< kNever while a client is connected.
};

/// The devices of a fabric, and the fabric that joins them.
class DeviceSet {
 public:
  struct Config {
    std::string fabric;
    Nanoseconds first_connect_timeout = 10'000'000'000;  ///< From attach to the first client.
    Nanoseconds reconnect_timeout = 2'000'000'000;       ///< From a client's end to the next one.
  };
  struct AttachRequest {
    std::string host;
    bool mapped_uars = false;
    /// Offered to drivers (FunctionConfig). Where UARs are trapped, each store is a message.
    bool blue_flame = false;
    bool persistent = false;
    std::uint64_t node_guid = 0;  ///< 0: host_guid().
  };

  DeviceSet(Config config, EngineClock& clock);
  ~DeviceSet();
  DeviceSet(const DeviceSet&) = delete;
  DeviceSet& operator=(const DeviceSet&) = delete;

  /// Adds a device and listens on its socket; with a host that is attached already, only
  /// `persistent` is raised. EBUSY: it is attached with other properties and in use; EEXIST: GUID
  /// taken; ENOSPC: fabric full.
  runtime::Result<Device*> attach(const AttachRequest& request);
  /// Ends a device's connection and removes it. ENOENT: no such host.
  runtime::Result<runtime::Done> detach(std::string_view host);

  /// Notes who is connected; removes devices whose client has gone for too long. True if one was
  /// removed.
  bool remove_unused();
  /// Earliest time remove_unused() has something to do.
  Nanoseconds next_removal() const;

  /// Who else must know that a host's device, and its link, have gone.
  void on_removal(std::function<void(const std::string& host)> notice) {
    removed_ = std::move(notice);
  }

  Device* find(std::string_view host);
  std::map<std::string, Device, std::less<>>& devices() { return devices_; }
  const std::map<std::string, Device, std::less<>>& devices() const { return devices_; }
  bool empty() const { return devices_.empty(); }
  fabric::Fabric& fabric() { return fabric_; }
  const std::string& fabric_name() const { return config_.fabric; }

 private:
  Nanoseconds removal_time(const Device& device) const;
  ib::Port* plug_in(const AttachRequest& request, std::uint64_t& node_guid);
  void remove(std::map<std::string, Device, std::less<>>::iterator entry);

  Config config_;
  EngineClock& clock_;
  fabric::Fabric fabric_;
  std::map<std::string, Device, std::less<>> devices_;
  std::function<void(const std::string&)> removed_;
  std::uint64_t next_id_ = 1;
};

}  // namespace softhca::emulator
