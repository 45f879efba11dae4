// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <cstdio>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "emulator/cli/commands.h"
#include "emulator/cli/fabric_access.h"

namespace softhca::cli {
namespace {

using nlohmann::json;

struct CtlOptions {
  std::string fabric;
  std::string link;
  std::string state;
  std::string level;
};

json send(const CtlOptions& options, const json& command) {
  auto reply = connect_or_fail(options.fabric).request(command);
  if (!reply) fail(reply.error());
  return std::move(*reply);
}

void add_link(CLI::App& app, const std::shared_ptr<CtlOptions>& options) {
  CLI::App* command = app.add_subcommand("link", "Pull or plug a host's cable");
  command->add_option("name", options->link, "Name of the link: that of its host")->required();
  command->add_option("state", options->state, "up or down")
      ->required()
      ->check(CLI::IsMember({"up", "down"}));
  command->callback([options] {
    send(*options, json{{"command", "link"}, {"name", options->link}, {"state", options->state}});
  });
}

void add_log_level(CLI::App& app, const std::shared_ptr<CtlOptions>& options) {
  CLI::App* command = app.add_subcommand("log-level", "Show or set the emulator's log level");
  command->add_option("level", options->level, "trace, debug, info, warn, error, critical or off");
  command->callback([options] {
    const json reply = send(*options, json{{"command", "log-level"}, {"level", options->level}});
    std::printf("%s\n", reply.value("level", "").c_str());
  });
}

void add_shutdown(CLI::App& app, const std::shared_ptr<CtlOptions>& options) {
  CLI::App* command =
      app.add_subcommand("shutdown", "End the emulator at once; its hosts lose their devices");
  command->callback([options] { send(*options, json{{"command", "shutdown"}}); });
}

}  // namespace

void add_ctl(CLI::App& app) {
  auto options = std::make_shared<CtlOptions>();
  CLI::App* command = app.add_subcommand("ctl", "Control a running fabric");
  add_fabric_option(*command, options->fabric);
  command->require_subcommand(1);
  command->fallthrough();
  add_link(*command, options);
  add_log_level(*command, options);
  add_shutdown(*command, options);
}

}  // namespace softhca::cli
