// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The emulator as a real process: start, attach, detach, end; and what happens when these race or
// somebody dies.
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include "emulator/control/client.h"
#include "emulator/runtime/lock.h"
#include "emulator/runtime/paths.h"
#include "emulator/runtime/spawn.h"
#include "emulator/runtime/unix_socket.h"
#include "tests/unit/engine/runtime_folder.h"

namespace softhca::emulator {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using runtime::UniqueFd;
using testing::HasSubstr;

constexpr char kFabric[] = "f";

template <typename Condition>
bool soon(Condition condition, std::chrono::milliseconds limit = 20s) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(5ms);
  }
  return true;
}

class EmulatorTest : public testing::Test {
 protected:
  ~EmulatorTest() override {
    if (running()) {
      auto client = ControlClient::connect(kFabric);
      if (client) [[maybe_unused]]
        const auto told = client->request(json{{"command", "shutdown"}});
      EXPECT_TRUE(soon([] { return !running(); })) << "the emulator does not end";
    }
    if (HasFailure()) {
      std::ifstream log(paths().log);
      std::cerr << log.rdbuf();
    }
  }

  static runtime::FabricPaths paths() { return runtime::fabric_paths(kFabric); }
  static bool running() { return runtime::FileLock::is_held(paths().lock); }

  static runtime::Result<runtime::Done> start(bool end_when_unused = false) {
    EXPECT_TRUE(runtime::make_fabric_folder(kFabric));
    runtime::DaemonOptions options;
    options.executable = SOFTHCA_PROGRAM;
    options.arguments = {"emulator", "--fabric", kFabric};
    if (end_when_unused) options.arguments.emplace_back("--end-when-unused");
    options.log_file = paths().log;
    options.timeout = 30s;
    return runtime::spawn_daemon(options);
  }

  static runtime::Result<json> request(const json& command) {
    auto client = ControlClient::connect(kFabric);
    if (!client) return client.error();
    return client->request(command, 20s);
  }
  static runtime::Result<json> attach(const std::string& host, bool persistent = false) {
    return request(json{
        {"command", "attach"}, {"host", host}, {"mapped_uars", true}, {"persistent", persistent}});
  }
  static json status() {
    auto reply = request(json{{"command", "status"}});
    return reply ? *reply : json::object();
  }
  static std::size_t host_count() { return status().value("hosts", json::array()).size(); }
  static pid_t emulator_pid() {
    auto client = ControlClient::connect(kFabric);
    return client ? runtime::peer_pid(client->fd()) : -1;
  }
  static std::string device_socket(const std::string& host) {
    return runtime::host_paths(kFabric, host).device_socket;
  }

  test::RuntimeFolder folder_;
};

TEST_F(EmulatorTest, attaches_and_detaches_hosts) {
  ASSERT_TRUE(start());
  const auto attached = attach("alpha");
  ASSERT_TRUE(attached) << attached.error().message;
  EXPECT_EQ(attached.value()["socket"], device_socket("alpha"));
  ASSERT_TRUE(attach("beta"));
  const json hosts = status()["hosts"];
  ASSERT_EQ(hosts.size(), 2U);
  EXPECT_EQ(hosts[0]["name"], "alpha");
  EXPECT_EQ(hosts[0]["port"]["state"], "ACTIVE") << "a port is up as soon as it is plugged in";
  EXPECT_NE(hosts[0]["port"]["lid"], hosts[1]["port"]["lid"]);
  EXPECT_NE(hosts[0]["node_guid"], hosts[1]["node_guid"]);

  ASSERT_TRUE(request(json{{"command", "detach"}, {"host", "alpha"}}));
  EXPECT_FALSE(std::filesystem::exists(device_socket("alpha")));
  EXPECT_EQ(host_count(), 1U);
}

TEST_F(EmulatorTest, attaching_a_host_again_changes_nothing) {
  ASSERT_TRUE(start());
  const auto first = attach("alpha");
  const auto second = attach("alpha");
  ASSERT_TRUE(first);
  ASSERT_TRUE(second);
  EXPECT_EQ(first.value(), second.value());
  EXPECT_EQ(host_count(), 1U);
}

TEST_F(EmulatorTest, refuses_unknown_hosts_and_names_the_known_ones) {
  ASSERT_TRUE(start());
  ASSERT_TRUE(attach("alpha"));
  for (const json& command : {json{{"command", "detach"}, {"host", "gamma"}},
                              json{{"command", "link"}, {"name", "gamma"}, {"state", "down"}}}) {
    const auto reply = request(command);
    ASSERT_FALSE(reply);
    EXPECT_EQ(reply.error().code, ENOENT);
    EXPECT_THAT(reply.error().message, HasSubstr("alpha"));
  }
}

TEST_F(EmulatorTest, refuses_malformed_commands) {
  ASSERT_TRUE(start());
  for (const json& command :
       {json::object(), json{{"command", 7}}, json{{"command", "fly"}}, json{{"command", "attach"}},
        json{{"command", "attach"}, {"host", "../x"}},
        json{{"command", "attach"}, {"host", "a"}, {"mapped_uars", "yes"}},
        json{{"command", "attach"}, {"host", "a"}, {"blue_flame", 1}},
        json{{"command", "attach"}, {"host", "a"}, {"node_guid", "0x"}},
        json{{"command", "attach"}, {"host", "a"}, {"node_guid", -1}},
        json{{"command", "link"}, {"name", "a"}, {"state", "sideways"}},
        json{{"command", "capture"}}, json{{"command", "log-level"}, {"level", "x"}}}) {
    const auto reply = request(command);
    EXPECT_FALSE(reply) << command;
  }
  EXPECT_EQ(host_count(), 0U);
}

TEST_F(EmulatorTest, one_of_many_that_start_at_once_serves_and_all_say_ready) {
  std::atomic<int> ready = 0;
  std::vector<std::thread> starters;
  for (int i = 0; i < 6; ++i) {
    starters.emplace_back([&ready] {
      const auto started = start();
      EXPECT_TRUE(started) << started.error().message;
      if (started) ++ready;
    });
  }
  for (std::thread& starter : starters) starter.join();
  EXPECT_EQ(ready, 6);
  const auto attached = attach("alpha");
  EXPECT_TRUE(attached) << attached.error().message;
}

TEST_F(EmulatorTest, takes_attach_commands_of_many_clients_at_once) {
  ASSERT_TRUE(start());
  std::vector<std::thread> clients;
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back([i] {
      const auto own = attach("host" + std::to_string(i));
      EXPECT_TRUE(own) << own.error().message;
      const auto common = attach("common");
      EXPECT_TRUE(common) << common.error().message;
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(host_count(), 9U);
}

TEST_F(EmulatorTest, replaces_the_sockets_of_one_that_was_killed) {
  ASSERT_TRUE(start());
  ASSERT_TRUE(attach("alpha"));
  const pid_t first = emulator_pid();
  ASSERT_EQ(::kill(first, SIGKILL), 0);
  ASSERT_TRUE(soon([] { return !running(); }));
  EXPECT_TRUE(std::filesystem::exists(paths().control_socket)) << "it had no time to clean up";
  const auto refused = ControlClient::connect(kFabric);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ECONNREFUSED);

  const auto restarted = start();
  ASSERT_TRUE(restarted) << restarted.error().message;
  EXPECT_NE(emulator_pid(), first);
  const auto attached = attach("alpha");
  ASSERT_TRUE(attached) << attached.error().message;
  EXPECT_TRUE(runtime::connect_unix(device_socket("alpha"), SOCK_STREAM));
}

TEST_F(EmulatorTest, ends_on_a_signal_and_leaves_no_socket) {
  ASSERT_TRUE(start());
  ASSERT_TRUE(attach("alpha"));
  ASSERT_EQ(::kill(emulator_pid(), SIGTERM), 0);
  ASSERT_TRUE(soon([] { return !running(); }));
  EXPECT_FALSE(std::filesystem::exists(paths().control_socket));
  EXPECT_FALSE(std::filesystem::exists(device_socket("alpha")));
}

TEST_F(EmulatorTest, ends_with_its_last_host_if_asked_to) {
  ASSERT_TRUE(start(true));
  ASSERT_TRUE(attach("alpha"));
  ASSERT_TRUE(request(json{{"command", "detach"}, {"host", "alpha"}}));
  EXPECT_TRUE(soon([] { return !running(); }));
}

TEST_F(EmulatorTest, removes_a_host_whose_client_died_and_keeps_a_persistent_one) {
  ASSERT_TRUE(start());
  ASSERT_TRUE(attach("alpha"));
  ASSERT_TRUE(attach("beta", true));
  for (const char* host : {"alpha", "beta"}) {
    auto socket = runtime::connect_unix(device_socket(host), SOCK_STREAM);
    ASSERT_TRUE(socket) << socket.error().message;
    const std::size_t index = host == std::string("alpha") ? 0 : 1;
    EXPECT_TRUE(soon([index] { return status()["hosts"][index].value("connected", false); }));
  }  // the connections close here, as a killed process's would
  EXPECT_TRUE(soon([] { return host_count() == 1; }));
  EXPECT_EQ(status()["hosts"][0]["name"], "beta");
}

TEST_F(EmulatorTest, takes_a_link_down_and_up) {
  ASSERT_TRUE(start());
  ASSERT_TRUE(attach("alpha"));
  ASSERT_TRUE(request(json{{"command", "link"}, {"name", "alpha"}, {"state", "down"}}));
  EXPECT_TRUE(soon([] { return status()["hosts"][0]["port"]["state"] == "DOWN"; }));
  ASSERT_TRUE(request(json{{"command", "link"}, {"name", "alpha"}, {"state", "up"}}));
  EXPECT_TRUE(soon([] { return status()["hosts"][0]["port"]["state"] == "ACTIVE"; }));
}

TEST_F(EmulatorTest, sleeps_when_nothing_happens) {
  ASSERT_TRUE(start());
  ASSERT_TRUE(attach("alpha"));
  ASSERT_TRUE(attach("beta", true));
  const auto ticks = [](pid_t pid) {
    std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
    std::string text((std::istreambuf_iterator<char>(stat)), {});
    std::istringstream fields(text.substr(text.rfind(')') + 2));
    std::string skipped;
    for (int i = 0; i < 11; ++i) fields >> skipped;
    long user = 0;
    long system = 0;
    fields >> user >> system;
    return user + system;
  };
  const pid_t pid = emulator_pid();
  std::this_thread::sleep_for(200ms);
  const long before = ticks(pid);
  std::this_thread::sleep_for(1s);
  EXPECT_LE(ticks(pid) - before, 3) << "of " << ::sysconf(_SC_CLK_TCK) << " ticks a second";
}

TEST_F(EmulatorTest, serves_hostile_control_clients_and_others_meanwhile) {
  ASSERT_TRUE(start());
  std::vector<UniqueFd> hostile;
  for (int i = 0; i < 100; ++i) {
    auto socket = runtime::connect_unix(paths().control_socket, SOCK_STREAM);
    if (!socket) continue;
    const std::string garbage = i % 2 == 0 ? std::string(100'000, '{') : "{\"command\":\"sta";
    [[maybe_unused]] const ssize_t sent =
        ::send(socket->get(), garbage.data(), garbage.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    hostile.push_back(std::move(*socket));
  }
  const auto attached = attach("alpha");
  EXPECT_TRUE(attached) << attached.error().message;
}

TEST_F(EmulatorTest, survives_garbage_on_a_device_socket) {
  ASSERT_TRUE(start());
  ASSERT_TRUE(attach("alpha", true));
  for (int i = 0; i < 10; ++i) {
    auto socket = runtime::connect_unix(device_socket("alpha"), SOCK_STREAM);
    ASSERT_TRUE(socket);
    const std::string garbage(1000 + i, static_cast<char>(0xa5 + i));
    [[maybe_unused]] const ssize_t sent =
        ::send(socket->get(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
  }
  EXPECT_EQ(host_count(), 1U);
  auto client = ControlClient::connect(kFabric);
  ASSERT_TRUE(client);
}

TEST_F(EmulatorTest, capture_writes_pcapng_until_its_client_ends) {
  ASSERT_TRUE(start());
  ASSERT_TRUE(attach("alpha"));
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd read_end(ends[0]);
  {
    const UniqueFd write_end(ends[1]);
    auto client = ControlClient::connect(kFabric);
    ASSERT_TRUE(client);
    const auto started =
        client->request_with_fd(json{{"command", "capture"}, {"link", "alpha"}}, write_end.get());
    ASSERT_TRUE(started) << started.error().message;
  }
  std::string text;
  std::array<char, 4096> bytes;
  ssize_t got = 0;
  while ((got = ::read(read_end.get(), bytes.data(), bytes.size())) > 0) {
    text.append(bytes.data(), static_cast<std::size_t>(got));
  }
  ASSERT_GE(text.size(), 28U) << "a section header at least, then end of file";
  EXPECT_EQ(text.substr(0, 4), "\x0a\x0d\x0d\x0a");
}

TEST_F(EmulatorTest, capture_of_a_link_ends_with_its_host) {
  ASSERT_TRUE(start());
  ASSERT_TRUE(attach("alpha"));
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  auto client = ControlClient::connect(kFabric);
  ASSERT_TRUE(client);
  ASSERT_TRUE(
      client->request_with_fd(json{{"command", "capture"}, {"link", "alpha"}}, write_end.get()));
  write_end.reset();
  ASSERT_TRUE(request(json{{"command", "detach"}, {"host", "alpha"}}));
  EXPECT_TRUE(soon([&read_end] {
    pollfd poll{read_end.get(), POLLIN, 0};
    ::poll(&poll, 1, 0);
    return (poll.revents & POLLHUP) != 0;
  }));
}

TEST_F(EmulatorTest, refuses_to_capture_into_what_could_block_it) {
  ASSERT_TRUE(start());
  ASSERT_TRUE(attach("alpha"));
  const std::string file = folder_.path() + "/file";
  const UniqueFd output(::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  auto client = ControlClient::connect(kFabric);
  ASSERT_TRUE(client);
  const auto refused = client->request_with_fd(json{{"command", "capture"}}, output.get());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, EINVAL);
}

}  // namespace
}  // namespace softhca::emulator
