// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <cstdio>
#include <exception>
#include <string>

#include <CLI/CLI.hpp>

#include "emulator/cli/commands.h"
#include "emulator/cli/usage.h"
#include "emulator/runtime/version.h"

namespace {

constexpr char kExitCodes[] =
    "Exit codes: 0 done; 1 failed, the reason is on stderr; 2 wrong arguments; 3 no such fabric "
    "or\n"
    "host is running. `run` and `vm` pass the code of their command on.";

void add_subcommands(CLI::App& app) {
  softhca::cli::add_run(app);
  softhca::cli::add_vm(app);
  softhca::cli::add_up(app);
  softhca::cli::add_down(app);
  softhca::cli::add_status(app);
  softhca::cli::add_capture(app);
  softhca::cli::add_ctl(app);
  softhca::cli::add_doctor(app);
  softhca::cli::add_emulator(app);
  softhca::cli::add_host(app);
}

int run(int argc, char** argv) {
  CLI::App app("Softhca: a software InfiniBand HCA and fabric", "softhca");
  app.set_version_flag("--version", std::string("softhca ") + softhca::runtime::kVersion);
  app.footer(kExitCodes);
  app.require_subcommand(1);
  app.failure_message([](const CLI::App* root, const CLI::Error& error) {
    return softhca::cli::usage_message(*root, error);
  });
  add_subcommands(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::RuntimeError& error) {
    return error.get_exit_code();  // the subcommand has said why
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? softhca::cli::kExitOk : softhca::cli::kExitUsage;
  }
  return softhca::cli::kExitOk;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "softhca: %s\n", error.what());
    return softhca::cli::kExitFailed;
  }
}
