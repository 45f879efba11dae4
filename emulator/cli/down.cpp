// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <poll.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "emulator/cli/commands.h"
#include "emulator/cli/fabric_access.h"
#include "emulator/control/client.h"
#include "emulator/control/host_client.h"
#include "emulator/runtime/lock.h"
#include "emulator/runtime/paths.h"

namespace softhca::cli {
namespace {

using nlohmann::json;
using shim::ControlAction;

constexpr std::chrono::seconds kEndTimeout{10};

struct DownOptions {
  std::string fabric;
  std::vector<std::string> hosts;
  bool all = false;
  bool force = false;
};

enum class DaemonEnd { ended, in_use, none };

/// Ends the host's daemon, or releases it when somebody uses it and `force` is not set.
DaemonEnd end_daemon(const std::string& fabric, const std::string& host, bool force) {
  const runtime::HostPaths paths = runtime::host_paths(fabric, host);
  const auto now = emulator::host_control(paths.kernel_socket, ControlAction::none);
  if (!now) return DaemonEnd::none;
  const bool in_use = now.value().leases > 0 || now.value().contexts > 0;
  const auto action = force ? ControlAction::stop : ControlAction::release;
  [[maybe_unused]] const auto told = emulator::host_control(paths.kernel_socket, action);
  if (in_use && !force) {
    std::printf(
        "host %s is in use (processes: %u, open devices: %u): it ends with its last user; "
        "--force ends it now\n",
        host.c_str(), now.value().leases, now.value().contexts);
    return DaemonEnd::in_use;
  }
  if (auto ended = runtime::FileLock::acquire(paths.lock, kEndTimeout); !ended) {
    fail("the daemon of host " + host + " does not end; see its log " + paths.log, kExitFailed);
  }
  return DaemonEnd::ended;
}

/// Returns when the emulator has closed the connection, or `time` is over.
void await_hang_up(const emulator::ControlClient& client, std::chrono::milliseconds time) {
  pollfd readable{client.fd(), POLLIN, 0};
  ::poll(&readable, 1, static_cast<int>(time.count()));
}

/// Returns when the host is no longer shown and, if it was the last one, the emulator has ended.
void await_end(const std::string& fabric, const std::string& host) {
  using std::chrono::milliseconds;
  constexpr milliseconds kEmulatorEnds{500};  // one that runs in the foreground may stay
  const auto deadline = std::chrono::steady_clock::now() + kEndTimeout;
  while (std::chrono::steady_clock::now() < deadline) {
    auto client = emulator::ControlClient::connect(fabric);
    if (!client) return;
    auto status = client->request(json{{"command", "status"}});
    if (!status) return;
    const json hosts = status->value("hosts", json::array());
    bool shown = false;
    for (const json& entry : hosts) shown = shown || entry.value("name", "") == host;
    if (!shown) {
      if (hosts.empty()) await_hang_up(*client, kEmulatorEnds);
      return;
    }
    std::this_thread::sleep_for(milliseconds(10));
  }
}

void take_down(const DownOptions& options, const std::string& host) {
  const DaemonEnd daemon = end_daemon(options.fabric, host, options.force);
  auto client = emulator::ControlClient::connect(options.fabric);
  if (!client) {
    // The daemon took the last device along, and the emulator with it.
    if (daemon != DaemonEnd::none) return;
    connect_or_fail(options.fabric);
  }
  json command{{"command", "detach"}, {"host", host}};
  if (daemon == DaemonEnd::in_use) {
    command = json{{"command", "persist"}, {"host", host}, {"persistent", false}};
  }
  const auto reply = client->request(command);
  if (!reply && daemon == DaemonEnd::none) fail(reply.error());
  if (daemon != DaemonEnd::in_use) await_end(options.fabric, host);
}

std::vector<std::string> attached_hosts(const std::string& fabric) {
  auto status = connect_or_fail(fabric).request(json{{"command", "status"}});
  if (!status) fail(status.error());
  std::vector<std::string> names;
  for (const json& host : status->value("hosts", json::array())) {
    names.push_back(host.value("name", ""));
  }
  return names;
}

}  // namespace

void add_down(CLI::App& app) {
  auto options = std::make_shared<DownOptions>();
  CLI::App* command =
      app.add_subcommand("down", "End virtual hosts (the fabric ends with its last)");
  add_fabric_option(*command, options->fabric);
  CLI::Option* hosts =
      command->add_option("host", options->hosts, "Names of the hosts")->check(complain_of_name);
  CLI::Option* all = command->add_flag("--all", options->all, "All hosts of the fabric");
  hosts->excludes(all);
  command->add_flag("--force", options->force, "Although somebody uses the host");
  command->callback([options] {
    if (options->all) options->hosts = attached_hosts(options->fabric);
    if (options->hosts.empty() && !options->all) fail("down: name a host, or --all", kExitUsage);
    for (const std::string& host : options->hosts) {
      take_down(*options, host);
    }
  });
}

}  // namespace softhca::cli
