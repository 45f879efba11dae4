// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A server that is watched in its runner's own epoll set.
#include <sys/epoll.h>
#include <unistd.h>

#include <array>

#include "tests/unit/device_server/server_fixture.h"

namespace softhca::emulator::test {
namespace {

using vfio_user::Client;
using vfio_user::FileDescriptor;

constexpr std::uint64_t kKey = 0x1234567890;

class SharedSet : public DeviceServerTest {
 protected:
  void prepare() override {
    set = FileDescriptor(::epoll_create1(EPOLL_CLOEXEC));
    ASSERT_TRUE(set);
    ASSERT_TRUE(server->watch_in(set.get(), kKey));
  }
  void wait_for_input(int timeout) override {
    for (int i = events(timeout); i > 0; --i) EXPECT_EQ(key_of(ready[i - 1]), kKey);
  }
  /// The loop ends, so that nobody else waits for events of the set.
  void end_loop() {
    stop = true;
    thread.join();
    thread = std::thread([] {});  // For TearDown().
  }
  int events(int timeout) { return ::epoll_wait(set.get(), ready.data(), kMaxReady, timeout); }

  /// A copy: epoll_event is packed.
  static std::uint64_t key_of(const epoll_event& event) { return event.data.u64; }

  static constexpr int kMaxReady = 4;
  std::array<epoll_event, kMaxReady> ready{};
  FileDescriptor set;
};

TEST_F(SharedSet, ClientsComeTalkAndGo) {
  for (int i = 0; i < 3; ++i) {
    const auto client = connect();
    ASSERT_TRUE(client);
    EXPECT_TRUE(client->device_info().ok());
    const auto id = client->read_register<std::uint32_t>(vfio_user::kRegionConfig, 0);
    ASSERT_TRUE(id.ok());
    EXPECT_EQ(*id, 0x101915b3U);
  }
  EXPECT_TRUE(disconnected());
}

TEST_F(SharedSet, AnIdleServerAndASecondClientLeaveNothingToPoll) {
  const auto client = connect();
  ASSERT_TRUE(client->device_info().ok());
  const FileDescriptor waiting = std::move(*vfio_user::connect_unix(path));
  end_loop();
  while (server->on_event()) {
  }
  events(0);
  EXPECT_EQ(events(50), 0) << "a loop on the set would spin";
}

TEST_F(SharedSet, AWakeIsToldOnce) {
  const auto client = connect();
  const auto entries = client->region_io_fds(kDoorbellHintsRegionIndex);
  ASSERT_TRUE(entries.ok());
  end_loop();
  while (server->on_event()) {
  }
  events(0);
  const std::uint64_t one = 1;
  ASSERT_EQ(::write((*entries)[0].fd.get(), &one, sizeof one), 8);
  EXPECT_EQ(events(0), 1);
  EXPECT_EQ(key_of(ready[0]), kKey);
  EXPECT_EQ(events(0), 0);
}

TEST_F(SharedSet, AClientThatHasLeftCannotFillTheNextOnesEventfd) {
  constexpr std::uint64_t kMost = ~std::uint64_t{0} - 1;
  constexpr std::uint64_t kOne = 1;
  auto first = connect();
  const auto kept = first->region_io_fds(kDoorbellHintsRegionIndex);
  ASSERT_TRUE(kept.ok());
  first.reset();
  ASSERT_TRUE(disconnected());
  const auto next = connect();
  const auto entries = next->region_io_fds(kDoorbellHintsRegionIndex);
  ASSERT_TRUE(entries.ok());
  end_loop();
  ASSERT_EQ(::write((*kept)[0].fd.get(), &kMost, sizeof kMost), 8);
  while (server->on_event()) {
  }
  while (events(0) > 0) {
  }
  ASSERT_EQ(::write((*entries)[0].fd.get(), &kOne, sizeof kOne), 8);
  EXPECT_EQ(events(0), 1);
}

TEST_F(SharedSet, AServerThatHasEndedIsHeardOfNoMore) {
  const auto client = connect();
  const auto entries = client->region_io_fds(kDoorbellHintsRegionIndex);
  ASSERT_TRUE(entries.ok());
  end_loop();
  server.reset();
  const std::uint64_t one = 1;
  ASSERT_EQ(::write((*entries)[0].fd.get(), &one, sizeof one), 8) << "the client keeps it";
  EXPECT_EQ(events(50), 0);
}

}  // namespace
}  // namespace softhca::emulator::test
