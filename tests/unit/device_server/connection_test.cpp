// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <vector>

#include "tests/unit/device_server/server_fixture.h"

namespace softhca::emulator::test {
namespace {

using namespace vfio_user;

class Connection : public DeviceServerTest {};

TEST_F(Connection, ClientsFollowEachOtherWithoutALeak) {
  { const auto warm_up = connect(); }
  ASSERT_TRUE(disconnected());
  const std::size_t before = open_fds();
  for (int i = 0; i < 30; ++i) {
    const auto client = connect();
    ASSERT_TRUE(client);
    const FileDescriptor memory(::open("/proc/self/mem", O_RDWR | O_CLOEXEC));
    ASSERT_TRUE(client->dma_map(0x10000, 0x1000, kDmaRead, memory.get(), 0x1000).ok());
    ASSERT_TRUE(client->dma_map(0x20000, 0x1000, kDmaRead, -1, 0).ok());
    const FileDescriptor event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    const std::array<int, 2> events{event.get(), event.get()};
    ASSERT_TRUE(client->set_irq_eventfds(kIrqMsix, 0, events).ok());
    ASSERT_TRUE(client->region_info(kDoorbellHintsRegionIndex).ok());
  }
  ASSERT_TRUE(disconnected());
  EXPECT_EQ(open_fds(), before);
  EXPECT_EQ(range_count(), 0U);
}

TEST_F(Connection, TheNextClientSharesNoPagesWithTheLast) {
  const auto inode = [&] {
    const auto client = connect();
    auto region = client->region_info(kDoorbellHintsRegionIndex);
    struct stat status {};
    EXPECT_EQ(::fstat(region->fd.get(), &status), 0);
    return status.st_ino;
  };
  const auto first = inode();
  ASSERT_TRUE(disconnected());
  EXPECT_NE(inode(), first) << "an earlier client may have kept its mapping";
}

TEST_F(Connection, ANewClientFindsADeviceAtPowerOn) {
  {
    const auto client = connect();
    ASSERT_TRUE(client->write_register<std::uint16_t>(kRegionConfig, 4, 0x0006).ok());
    EXPECT_EQ(*client->read_register<std::uint16_t>(kRegionConfig, 4) & 0x6, 0x6);
  }
  ASSERT_TRUE(disconnected());
  const auto client = connect();
  EXPECT_EQ(*client->read_register<std::uint16_t>(kRegionConfig, 4) & 0x6, 0);
}

TEST_F(Connection, AVectorRaisedBeforeItIsAttachedIsDelivered) {
  const auto client = connect();
  ASSERT_TRUE(client->act_on_irqs(kIrqMsix, kIrqSetActionTrigger, 5, 1).ok());
  const FileDescriptor event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const int fd = event.get();
  ASSERT_TRUE(client->set_irq_eventfds(kIrqMsix, 5, {&fd, 1}).ok());
  std::uint64_t count = 0;
  EXPECT_EQ(::read(fd, &count, sizeof count), 8);
  EXPECT_EQ(count, 1U);
}

TEST_F(Connection, PendingVectorsShowInThePendingBitArray) {
  const auto client = connect();
  ASSERT_TRUE(client->act_on_irqs(kIrqMsix, kIrqSetActionTrigger, 9, 1).ok());
  EXPECT_EQ(*client->read_register<std::uint64_t>(kRegionBar0, Function::kMsixPba), 1U << 9);
  EXPECT_EQ(*client->read_register<std::uint8_t>(kRegionBar0, Function::kMsixPba + 1), 2U);
}

TEST_F(Connection, ResetForgetsPendingInterruptsAndKeepsMaps) {
  const auto client = connect();
  ASSERT_TRUE(client->act_on_irqs(kIrqMsix, kIrqSetActionTrigger, 5, 1).ok());
  ASSERT_TRUE(client->dma_map(0x20000, 0x1000, kDmaRead, -1, 0).ok());
  ASSERT_TRUE(client->reset().ok());
  EXPECT_EQ(range_count(), 1U);
  const FileDescriptor event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const int fd = event.get();
  ASSERT_TRUE(client->set_irq_eventfds(kIrqMsix, 5, {&fd, 1}).ok());
  std::uint64_t count = 0;
  EXPECT_EQ(::read(fd, &count, sizeof count), -1);
}

TEST_F(Connection, TheServerMayEndIt) {
  const auto client = connect();
  with_server([](DeviceServer& s) {
    s.disconnect("detached by its user");
    EXPECT_FALSE(s.connected());
    return 0;
  });
  EXPECT_EQ(client->device_info().error().kind, ErrorKind::disconnected);
  EXPECT_TRUE(connect());
  with_server([this](DeviceServer&) {
    EXPECT_NE(std::ranges::find(log, "client gone: detached by its user"), log.end());
    return 0;
  });
}

TEST_F(Connection, AnIdleServerHasNothingToPoll) {
  const auto client = connect();
  ASSERT_TRUE(client->device_info().ok());
  const std::lock_guard lock(mutex);
  while (server->on_event()) {
  }
  pollfd entry{server->poll_fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&entry, 1, 50), 0) << "a loop on poll_fd() would spin";
}

TEST_F(Connection, AWaitingSecondClientDoesNotMakeItSpin) {
  const auto client = connect();
  ClientOptions impatient;
  impatient.timeout = std::chrono::milliseconds(50);
  EXPECT_FALSE(Client::connect(path, impatient).ok());
  const FileDescriptor waiting = std::move(*connect_unix(path));
  const std::lock_guard lock(mutex);
  while (server->on_event()) {
  }
  pollfd entry{server->poll_fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&entry, 1, 50), 0);
}

}  // namespace
}  // namespace softhca::emulator::test
