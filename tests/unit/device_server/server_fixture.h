// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "emulator/device-server/device_server.h"
#include "emulator/engine/clock.h"
#include "emulator/vfio-user/client.h"
#include "emulator/vfio-user/unix_socket.h"

namespace softhca::emulator::test {

inline std::size_t open_fds() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++count;
  }
  return count;
}

/// A port without a cable.
class DeadPort final : public ib::Port {
 public:
  const ib::PortAttributes& attributes() const override { return attributes_; }
  void send(ib::PacketPtr) override {}
  bool ready() const override { return true; }

 private:
  ib::PortAttributes attributes_;
};

/// A DeviceServer with the emulator's loop around it in a thread, and a folder for its socket.
class DeviceServerTest : public ::testing::Test {
 protected:
  static FunctionConfig config(bool mapped_uars) {
    FunctionConfig config;
    config.node_guid = 0x0002c90300000001;
    config.num_msix_vectors = 16;
    config.mapped_uars = mapped_uars;
    return config;
  }
  explicit DeviceServerTest(bool mapped_uars = true) : mapped_uars_(mapped_uars) {}

  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "device-server-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder = name;
    path = folder / "device.sock";
    auto listening = vfio_user::listen_unix(path);
    ASSERT_TRUE(listening.ok());
    server =
        std::make_unique<DeviceServer>(config(mapped_uars_), port, clock, std::move(*listening),
                                       [this](const std::string& line) { log.push_back(line); });
    prepare();
    thread = std::thread([this] { loop(); });
  }
  void TearDown() override {
    stop = true;
    thread.join();
    server.reset();
    std::filesystem::remove_all(folder);
  }
  /// Called before the loop begins.
  virtual void prepare() {}
  /// Waits for input of the server, up to `timeout` milliseconds.
  virtual void wait_for_input(int timeout) {
    pollfd entry{server->poll_fd(), POLLIN, 0};
    ::poll(&entry, 1, timeout);
  }
  void loop() {
    bool busy = false;
    while (!stop) {
      wait_for_input(busy ? 0 : 5);
      const std::lock_guard lock(mutex);
      clock.refresh();
      busy = server->on_event();
      busy |= server->step({});
    }
  }
  /// Runs `call` with the server to itself.
  template <typename Call>
  auto with_server(Call&& call) {
    const std::lock_guard lock(mutex);
    return call(*server);
  }
  std::size_t range_count() {
    return with_server([](DeviceServer& s) { return s.function().dma().range_count(); });
  }
  /// True as soon as `condition` holds; gives up after five seconds.
  template <typename Condition>
  static bool eventually(Condition&& condition) {
    for (int i = 0; i < 1000; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return condition();
  }
  bool disconnected() {
    return eventually([&] { return !with_server([](DeviceServer& s) { return s.connected(); }); });
  }
  std::unique_ptr<vfio_user::Client> connect(vfio_user::ClientOptions options = {}) {
    auto client = vfio_user::Client::connect(path, options);
    EXPECT_TRUE(client.ok()) << client.error().message;
    return client.ok() ? std::move(*client) : nullptr;
  }

  const bool mapped_uars_;
  std::filesystem::path folder;
  std::string path;
  DeadPort port;
  EngineClock clock;
  std::mutex mutex;
  std::vector<std::string> log;
  std::unique_ptr<DeviceServer> server;
  std::atomic<bool> stop{false};
  std::thread thread;
};

}  // namespace softhca::emulator::test
