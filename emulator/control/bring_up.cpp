// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/control/bring_up.h"

#include <cerrno>
#include <chrono>
#include <string>
#include <thread>

#include <nlohmann/json.hpp>

#include "emulator/control/client.h"
#include "emulator/control/host_client.h"
#include "emulator/runtime/lock.h"
#include "emulator/runtime/paths.h"
#include "emulator/runtime/spawn.h"
#include "emulator/runtime/unix_socket.h"

namespace softhca::emulator {
namespace {

using nlohmann::json;
using runtime::Done;
using runtime::Error;
using runtime::Result;

/// Whoever ends while we talk to it is started anew; it takes several endings at the worst moments
/// to get through these.
constexpr int kAttempts = 5;

constexpr std::chrono::seconds kHostTimeout{10};
/// With a device of VFIO: the kernel itself waits up to a minute for one that it has reset.
constexpr std::chrono::seconds kDeviceTimeout{90};

std::chrono::seconds host_timeout(const AttachOptions& options) {
  return options.pci_address.empty() ? kHostTimeout : kDeviceTimeout;
}

bool nobody_there(const Error& error) {
  return error.code == ENOENT || error.code == ECONNREFUSED || error.code == ECONNRESET;
}

Result<Done> ping_emulator(const std::string& fabric) {
  auto client = ControlClient::connect(fabric);
  if (!client) return client.error();
  auto reply = client->request(json{{"command", "ping"}});
  if (reply) return Done{};
  Error error = reply.error();
  if (error.code == ETIMEDOUT || error.code == EPROTO) {
    error.message += "; end process " + std::to_string(runtime::peer_pid(client->fd())) +
                     ", which serves " + runtime::fabric_paths(fabric).control_socket +
                     ", or choose another --fabric";
  }
  return error;
}

Result<Done> start_emulator(const std::string& fabric) {
  const auto paths = runtime::make_fabric_folder(fabric);
  if (!paths) return paths.error();
  runtime::DaemonOptions options;
  options.arguments = {"emulator", "--fabric", fabric, "--end-when-unused"};
  options.log_file = paths.value().log;
  return runtime::spawn_daemon(options);
}

Result<Done> start_host(const std::string& fabric, const std::string& host,
                        const AttachOptions& attach) {
  const auto paths = runtime::make_host_folder(fabric, host);
  if (!paths) return paths.error();
  runtime::DaemonOptions options;
  options.arguments = {"host", "--fabric", fabric, "--host", host};
  if (attach.persistent) options.arguments.emplace_back("--persistent");
  if (!attach.pci_address.empty()) {
    options.arguments.insert(options.arguments.end(), {"--device", attach.pci_address});
    options.timeout = kDeviceTimeout;
  }
  options.log_file = paths.value().log;
  return runtime::spawn_daemon(options);
}

/// The daemon answers (and is told to stay, if wanted). ENODEV: it has lost its device.
Result<Done> greet_host(const std::string& fabric, const std::string& host, bool persistent) {
  const auto action = persistent ? shim::ControlAction::persist : shim::ControlAction::none;
  auto reply = host_control(runtime::host_paths(fabric, host).kernel_socket, action);
  if (!reply) return reply.error();
  if (reply->device_alive == 0) return Error{ENODEV, "host " + host + " has lost its device"};
  return Done{};
}

/// True if some daemon, answering or not, holds the host's lock: one that is just starting or
/// ending.
bool has_daemon(const std::string& fabric, const std::string& host) {
  return runtime::FileLock::is_held(runtime::host_paths(fabric, host).lock);
}

}  // namespace

Result<Done> ensure_emulator(const std::string& fabric) {
  if (!runtime::is_valid_name(fabric)) {
    return Error{EINVAL,
                 "bad fabric name '" + fabric + "': 1 to 64 letters, digits, '_', '.', '-'"};
  }
  Result<Done> last = Done{};
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    last = ping_emulator(fabric);
    if (last || !nobody_there(last.error())) return last;
    if (auto started = start_emulator(fabric); !started) return started;
  }
  return last;
}

Result<Done> attach_host(const std::string& fabric, const std::string& host,
                         const AttachOptions& options) {
  const json command{{"command", "attach"},
                     {"host", host},
                     {"mapped_uars", options.mapped_uars},
                     {"blue_flame", options.blue_flame},
                     {"persistent", options.persistent}};
  Result<Done> last = Done{};
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (auto running = ensure_emulator(fabric); !running) return running;
    auto client = ControlClient::connect(fabric);
    if (client) {
      auto reply = client->request(command);
      if (reply) return Done{};
      last = reply.error();
    } else {
      last = client.error();
    }
    if (!nobody_there(last.error())) return last;
  }
  return last;
}

Result<Done> bring_up_host(const std::string& fabric, const std::string& host,
                           const AttachOptions& options) {
  const auto paths = runtime::make_host_folder(fabric, host);
  if (!paths) return paths.error();
  const auto deadline = std::chrono::steady_clock::now() + host_timeout(options);
  int starts = 0;
  Result<Done> started = Done{};
  while (true) {
    Result<Done> greeted = greet_host(fabric, host, options.persistent);
    if (greeted) return greeted;
    const bool lost_device = greeted.error().code == ENODEV;
    if (!nobody_there(greeted.error()) && !lost_device) return greeted;
    if (lost_device) {
      // A daemon whose emulator died is of no use to anybody.
      [[maybe_unused]] const auto told =
          host_control(paths.value().kernel_socket, shim::ControlAction::stop);
    }
    if (has_daemon(fabric, host)) {
      if (std::chrono::steady_clock::now() >= deadline) {
        return Error{EBUSY, "the daemon of host " + host +
                                " neither answers nor ends; see its log " + paths.value().log};
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      continue;
    }
    // Several commands that use a host for the first time at once start one daemon, not one each.
    const auto starting =
        runtime::FileLock::acquire(paths.value().lock + ".start", host_timeout(options));
    if (!starting) return starting.error();
    if (greet_host(fabric, host, options.persistent)) return Done{};
    if (has_daemon(fabric, host)) continue;
    // It fails, too, when another daemon was faster, or one that was ending took the device along.
    if (starts++ == kAttempts) {
      if (!started) return started;
      return Error{ECONNRESET, "the daemon of host " + host +
                                   " ends as soon as it is up; see its log " + paths.value().log};
    }
    // What keeps the device is the daemon's connection: without a daemon it is of no use.
    AttachOptions attach = options;
    attach.persistent = false;
    if (options.pci_address.empty()) {
      if (auto attached = attach_host(fabric, host, attach); !attached) return attached;
    }
    started = start_host(fabric, host, options);
    // Nobody else is about to make the device ready.
    if (!started && !options.pci_address.empty() && !has_daemon(fabric, host)) return started;
  }
}

}  // namespace softhca::emulator
