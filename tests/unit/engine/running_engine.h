// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include <sys/socket.h>
#include <nlohmann/json.hpp>

#include "emulator/control/client.h"
#include "emulator/engine/engine.h"
#include "emulator/runtime/paths.h"
#include "emulator/runtime/unix_socket.h"
#include "emulator/vfio-user/client.h"
#include "tests/unit/engine/runtime_folder.h"

namespace softhca::test {

/// The engine of fabric "f" in a thread of its own. What goes wrong is thrown.
class RunningEngine {
 public:
  RunningEngine() {
    const auto paths = runtime::make_fabric_folder("f");
    if (!paths) throw std::runtime_error(paths.error().message);
    auto listening = runtime::listen_unix(paths.value().control_socket, SOCK_STREAM);
    if (!listening) throw std::runtime_error(listening.error().message);
    emulator::Engine::Options options;
    options.fabric = "f";
    engine_ = std::make_unique<emulator::Engine>(options, std::move(*listening));
    thread_ = std::thread([this] { engine_->run(); });
  }
  ~RunningEngine() {
    tell({{"command", "shutdown"}});
    thread_.join();
  }
  RunningEngine(const RunningEngine&) = delete;
  RunningEngine& operator=(const RunningEngine&) = delete;

  /// Reply to a control command.
  static nlohmann::json tell(const nlohmann::json& command) {
    auto client = emulator::ControlClient::connect("f");
    if (!client) throw std::runtime_error(client.error().message);
    auto reply = client->request(command, std::chrono::seconds(20));
    if (!reply) throw std::runtime_error(reply.error().message);
    return *reply;
  }

  /// A new host's device.
  static std::unique_ptr<vfio_user::Client> attach(const std::string& host,
                                                   bool mapped_uars = false) {
    tell({{"command", "attach"}, {"host", host}, {"mapped_uars", mapped_uars}});
    auto client = vfio_user::Client::connect(runtime::host_paths("f", host).device_socket);
    if (!client) throw std::runtime_error(client.error().message);
    return std::move(*client);
  }

 private:
  RuntimeFolder folder_;
  std::unique_ptr<emulator::Engine> engine_;
  std::thread thread_;
};

}  // namespace softhca::test
