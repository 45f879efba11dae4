// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <cerrno>
#include <chrono>
#include <memory>
#include <thread>

#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "emulator/cli/commands.h"
#include "emulator/cli/fabric_access.h"
#include "emulator/control/client.h"
#include "emulator/engine/engine.h"
#include "emulator/runtime/lock.h"
#include "emulator/runtime/logging.h"
#include "emulator/runtime/paths.h"
#include "emulator/runtime/spawn.h"
#include "emulator/runtime/unix_socket.h"
#include "emulator/runtime/version.h"

namespace softhca::cli {
namespace {

using runtime::FileLock;

[[noreturn]] void fail_start(const std::string& reason) {
  runtime::notify_failed(reason);
  fail(reason, kExitFailed);
}

bool answers(const std::string& fabric) {
  auto client = emulator::ControlClient::connect(fabric);
  return client && client->request(nlohmann::json{{"command", "ping"}});
}

/// The lock that makes this process the fabric's emulator; nullptr when another one runs and
/// answers. One that is just starting or ending is waited for.
std::unique_ptr<FileLock> become_emulator(const std::string& fabric,
                                          const runtime::FabricPaths& paths) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (true) {
    auto lock = FileLock::try_acquire(paths.lock);
    if (lock) return std::make_unique<FileLock>(std::move(*lock));
    if (lock.error().code != EWOULDBLOCK) fail_start(lock.error().message);
    if (answers(fabric)) return nullptr;
    if (std::chrono::steady_clock::now() >= end) {
      fail_start("another emulator holds " + paths.lock + " but does not answer");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

/// Each mapping of a guest may bring a descriptor.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

void run_emulator(emulator::Engine::Options options) {
  runtime::set_up_logging("emulator");
  const auto paths = runtime::make_fabric_folder(options.fabric);
  if (!paths) fail_start(paths.error().message);
  const auto lock = become_emulator(options.fabric, paths.value());
  if (lock == nullptr) {
    spdlog::info("fabric {}: an emulator is running already", options.fabric);
    runtime::notify_ready();
    return;
  }
  raise_descriptor_limit();
  auto control = runtime::listen_unix(paths.value().control_socket, SOCK_STREAM, 128);
  if (!control) fail_start(control.error().message);
  const std::string fabric = options.fabric;
  try {
    emulator::Engine engine(std::move(options), std::move(*control));
    spdlog::info("fabric {}: softhca {} serves {}", fabric, runtime::kVersion,
                 paths.value().control_socket);
    runtime::notify_ready();
    engine.run();
    // Still under the lock: whoever comes now finds no socket and starts a new emulator.
    ::unlink(paths.value().control_socket.c_str());
  } catch (const std::exception& error) {
    ::unlink(paths.value().control_socket.c_str());
    spdlog::critical("fabric {}: {}", fabric, error.what());
    fail_start(error.what());
  }
  spdlog::info("fabric {}: ended", fabric);
}

}  // namespace

void add_emulator(CLI::App& app) {
  auto options = std::make_shared<emulator::Engine::Options>();
  auto spin_us = std::make_shared<unsigned>(options->idle_spin / Nanoseconds{1000});
  CLI::App* command = app.add_subcommand(
      "emulator", "Run a fabric's emulator in the foreground (`run` and `up` start one as needed)");
  add_fabric_option(*command, options->fabric);
  command->add_flag("--end-when-unused", options->end_when_unused,
                    "End when the last host has gone");
  command
      ->add_option("--idle-spin-us", *spin_us, "Microseconds to poll without work before sleeping")
      ->envname("SOFTHCA_IDLE_SPIN_US")
      ->capture_default_str()
      ->check(CLI::Range(0U, 1'000'000U));
  command->callback([options, spin_us] {
    options->idle_spin = *spin_us * Nanoseconds{1000};
    run_emulator(*options);
  });
}

}  // namespace softhca::cli
