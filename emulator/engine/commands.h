// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <functional>

#include <nlohmann/json_fwd.hpp>

#include "emulator/control/server.h"
#include "emulator/engine/captures.h"
#include "emulator/engine/device_set.h"

namespace softhca::emulator {

/// The commands of the control socket. Every request is an object with "command"; every reply has
/// "ok", and when that is false "error" (a sentence) and "code" (errno).
///
/// | command     | members                                                  | reply | | -----------
/// | -------------------------------------------------------- | -------------------------- | |
/// `ping`      |                                                          | `version`, `fabric`,
/// `pid` | | `attach`    | `host`; `mapped_uars`, `blue_flame`, `persistent` (bool, | `socket`,
/// `node_guid`      | |             | false), `node_guid` (number or "0x…")                    | |
/// | `detach`    | `host`                                                   | | | `persist`   |
/// `host`, `persistent` (bool)                              |                            | |
/// `status`    |                                                          | see Commands::status()
/// | | `link`      | `name` (a host's name), `state` ("up", "down")           | | | `capture`   |
/// `link` (absent or "": all); a descriptor comes along,    |                            | | |
/// which receives pcapng until the connection is closed     |                            | |
/// `log-level` | `level` (absent: only ask)                               | `level` | | `shutdown`
/// |                                                          |                            |
class Commands {
 public:
  Commands(DeviceSet& devices, Captures& captures, std::function<void()> stop);

  nlohmann::json answer(const ControlServer::Request& request);

 private:
  nlohmann::json ping() const;
  nlohmann::json attach(const nlohmann::json& request);
  nlohmann::json detach(const nlohmann::json& request);
  nlohmann::json persist(const nlohmann::json& request);
  nlohmann::json status();
  nlohmann::json link(const nlohmann::json& request);
  nlohmann::json capture(const ControlServer::Request& request);
  nlohmann::json log_level(const nlohmann::json& request);
  nlohmann::json shutdown();
  nlohmann::json no_such_host(const std::string& host) const;

  DeviceSet& devices_;
  Captures& captures_;
  std::function<void()> stop_;
};

}  // namespace softhca::emulator
