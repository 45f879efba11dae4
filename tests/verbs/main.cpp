// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <sys/socket.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <thread>
#include <vector>

#include "tests/verbs/scenarios.h"

/// softhca_verbs_check: sends known bytes by every operation and looks at what arrives, between two
/// processes
/// (--server PORT, --client PORT) or two threads of one (--local). Linked to libibverbs only.
namespace softhca::verbs_check {
namespace {

struct Options {
  std::string device;
  std::string expected_provider;
  std::vector<std::string> only;
  bool all_styles = false;
  bool list = false;
  bool local = false;
  std::uint16_t server_port = 0;
  std::uint16_t client_port = 0;
};

std::vector<Scenario> all_scenarios() {
  std::vector<Scenario> all;
  for (const auto& group :
       {data_scenarios(), datagram_scenarios(), queue_scenarios(), fault_scenarios(),
        protection_scenarios(), unmapped_scenarios(), anew_scenarios(), again_scenarios()}) {
    all.insert(all.end(), group.begin(), group.end());
  }
  return all;
}

/// Styles for a scenario that is worth several: every MTU, post call, poll call and way of waiting
/// occurs; with `all`, in every combination.
std::vector<Style> styles(bool all) {
  constexpr ibv_mtu kMtus[] = {IBV_MTU_256, IBV_MTU_512, IBV_MTU_1024, IBV_MTU_2048, IBV_MTU_4096};
  if (!all) {
    return {{false, false, false, IBV_MTU_4096},
            {true, false, false, IBV_MTU_1024},
            {false, true, true, IBV_MTU_256},
            {true, true, false, IBV_MTU_2048},
            {true, false, true, IBV_MTU_512}};
  }
  std::vector<Style> result;
  for (const ibv_mtu mtu : kMtus) {
    for (unsigned bits = 0; bits < 8; ++bits) {
      result.push_back({(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, mtu});
    }
  }
  return result;
}

bool wanted(const Options& options, const Scenario& scenario) {
  if (options.only.empty()) return true;
  for (const std::string& name : options.only) {
    if (name == scenario.name) return true;
  }
  return false;
}

/// Runs everything as one side; the number of runs.
int run_side(const Options& options, Side& side) {
  Device device(options.device);
  const std::string provider = device.provider();
  if (side.index() == 0 || !options.local) std::printf("provider: %s\n", provider.c_str());
  require(options.expected_provider.empty() || provider == options.expected_provider,
          "bound to provider " + provider + ", expected is " + options.expected_provider);
  int runs = 0;
  for (const Scenario& scenario : all_scenarios()) {
    if (!wanted(options, scenario)) continue;
    const std::vector<Style> chosen =
        scenario.every_style ? styles(options.all_styles) : std::vector{Style{}};
    for (const Style& style : chosen) {
      const std::string name = std::string(scenario.name) + " (" + describe(style) + ")";
      try {
        scenario.run(device, side, style);
      } catch (const Failure& failure) {
        throw Failure(name + ": " + failure.what());
      }
      ++runs;
      if (side.is_server()) std::printf("ok %s\n", name.c_str());
      std::fflush(stdout);
    }
  }
  return runs;
}

/// Runs one side and says how it ended; false on failure.
bool run_and_report(const Options& options, int index, int socket) {
  try {
    Side side(index, socket);
    const int runs = run_side(options, side);
    require(runs > 0, "no such scenario");
    if (index == 0) std::printf("%d checks passed\n", runs);
    return true;
  } catch (const std::exception& failure) {
    std::printf("FAILED (%s) %s\n", index == 0 ? "server" : "client", failure.what());
    std::fflush(stdout);
    return false;
  }
}

bool run_local(const Options& options) {
  int sockets[2] = {-1, -1};
  require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) == 0, "socketpair failed");
  bool client_passed = false;
  std::thread client([&] { client_passed = run_and_report(options, 1, sockets[1]); });
  const bool server_passed = run_and_report(options, 0, sockets[0]);
  client.join();
  return server_passed && client_passed;
}

int run(const Options& options) {
  if (options.list) {
    for (const Scenario& scenario : all_scenarios()) std::printf("%s\n", scenario.name);
    return 0;
  }
  bool passed = false;
  if (options.local) {
    passed = run_local(options);
  } else if (options.server_port != 0) {
    passed = run_and_report(options, 0, accept_peer(options.server_port));
  } else {
    require(options.client_port != 0, "say --local, --server PORT or --client PORT");
    passed = run_and_report(options, 1, connect_peer(options.client_port));
  }
  return passed ? 0 : 1;
}

}  // namespace
}  // namespace softhca::verbs_check

int main(int argc, char** argv) {
  softhca::verbs_check::Options options;
  CLI::App app{"Payload checks of every verbs operation"};
  app.add_option("--device", options.device, "Device name; the first one if not given");
  app.add_option("--expect-provider", options.expected_provider,
                 "Fail unless this provider is bound");
  app.add_option("--only", options.only, "Scenarios to run");
  app.add_flag("--all-styles", options.all_styles, "Every combination of calls and MTU");
  app.add_flag("--list", options.list, "List the scenarios");
  app.add_flag("--local", options.local, "Both ends in this process");
  app.add_option("--server", options.server_port, "Be the first end; listen on this port");
  app.add_option("--client", options.client_port, "Be the second end; connect to this port");
  CLI11_PARSE(app, argc, argv);
  try {
    return softhca::verbs_check::run(options);
  } catch (const std::exception& failure) {
    std::printf("FAILED %s\n", failure.what());
    return 1;
  }
}
