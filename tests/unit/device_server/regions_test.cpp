// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>

#include "tests/unit/device_server/server_fixture.h"

namespace softhca::emulator::test {
namespace {

using namespace vfio_user;

constexpr std::uint64_t kFirstUarOffset = std::uint64_t{Function::kFirstUar} * 4096;

class Regions : public DeviceServerTest {
 protected:
  void SetUp() override {
    DeviceServerTest::SetUp();
    client = connect();
    ASSERT_TRUE(client);
  }
  void TearDown() override {
    client.reset();
    DeviceServerTest::TearDown();
  }
  std::unique_ptr<Client> client;
};

TEST_F(Regions, ThePciRegionsAndTheHints) {
  EXPECT_EQ(client->device_info()->num_regions, kDoorbellHintsRegionIndex + 1);
  EXPECT_EQ(client->region_info(kRegionBar0)->size, Function::kBar0Size);
  EXPECT_EQ(client->region_info(kRegionConfig)->size, 4096U);
  EXPECT_EQ(client->region_info(kDoorbellHintsRegionIndex)->size, kDoorbellHintsSize);
  for (const std::uint32_t absent : {1U, 2U, 3U, 4U, 5U, 6U, 8U}) {
    EXPECT_EQ(client->region_info(absent)->size, 0U) << absent;
  }
}

TEST_F(Regions, InterruptsAreAsQemuNeedsThem) {
  EXPECT_EQ(client->irq_info(kIrqIntx)->count, 1U);
  EXPECT_EQ(client->irq_info(kIrqMsi)->count, 0U);
  const auto msix = client->irq_info(kIrqMsix);
  EXPECT_EQ(msix->count, 16U);
  EXPECT_EQ(msix->flags & kIrqNoResize, 0U);
  EXPECT_EQ(client->irq_info(kIrqErr)->count, 1U);
  EXPECT_EQ(client->irq_info(kIrqReq)->count, 1U);
}

TEST_F(Regions, ConfigurationSpaceIsAConnectX5) {
  EXPECT_EQ(*client->read_register<std::uint32_t>(kRegionConfig, 0), 0x101915b3U);
  EXPECT_EQ(*client->read_register<std::uint16_t>(kRegionConfig, 0), 0x15b3U);
  std::array<std::byte, 4096> whole{};
  EXPECT_TRUE(client->region_read(kRegionConfig, 0, whole).ok()) << "QEMU reads all of it at once";
  EXPECT_EQ(whole[0], std::byte{0xb3});
  EXPECT_FALSE(client->read_register<std::uint32_t>(kRegionConfig, 4094).ok());
}

TEST_F(Regions, InitializationSegmentReadsAsRegistersOrAsABlock) {
  const auto word = client->read_register<std::uint32_t>(kRegionBar0, 4);
  ASSERT_TRUE(word.ok());
  EXPECT_EQ(__builtin_bswap32(*word) >> 16, 5U) << "command interface revision";
  std::array<std::byte, 512> block{};
  ASSERT_TRUE(client->region_read(kRegionBar0, 0, block).ok());
  EXPECT_EQ(std::memcmp(block.data() + 4, &*word, 4), 0);
}

TEST_F(Regions, UarsMapAtTheirBarOffset) {
  auto bar = client->region_info(kRegionBar0);
  ASSERT_TRUE(bar.ok());
  ASSERT_EQ(bar->mmap_areas.size(), 1U);
  EXPECT_EQ(bar->mmap_areas[0].offset, kFirstUarOffset);
  EXPECT_EQ(bar->mmap_areas[0].size, std::uint64_t{Function::kUarCount} * 4096);
  const auto offset = static_cast<off_t>(bar->fd_offset + bar->mmap_areas[0].offset);
  void* base = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, bar->fd.get(), offset);
  ASSERT_NE(base, MAP_FAILED);
  ::munmap(base, 4096);
}

TEST_F(Regions, DriversCannotShrinkWhatTheDeviceMaps) {
  for (const std::uint32_t index : {kRegionBar0, std::uint32_t{kDoorbellHintsRegionIndex}}) {
    auto region = client->region_info(index);
    ASSERT_TRUE(region->fd);
    EXPECT_NE(::ftruncate(region->fd.get(), 0), 0) << index;
    EXPECT_NE(::ftruncate(region->fd.get(), 1L << 40), 0) << index;
  }
}

TEST_F(Regions, HintsAreSharedWithTheDevice) {
  auto region = client->region_info(kDoorbellHintsRegionIndex);
  ASSERT_TRUE(region.ok());
  void* base = ::mmap(nullptr, region->size, PROT_READ | PROT_WRITE, MAP_SHARED, region->fd.get(),
                      static_cast<off_t>(region->fd_offset));
  ASSERT_NE(base, MAP_FAILED);
  auto* hints = static_cast<DoorbellHints*>(base);
  with_server([&](DeviceServer& s) {
    s.hints().engine_state.store(kEngineSleeping);
    EXPECT_EQ(hints->engine_state.load(), kEngineSleeping);
    return 0;
  });
  EXPECT_TRUE(hints->must_wake());
  EXPECT_EQ(*client->read_register<std::uint32_t>(kDoorbellHintsRegionIndex, 0), kEngineAwake);
  ::munmap(base, region->size);
}

TEST_F(Regions, HintsCountSinceTheWakeEventfdWasAskedFor) {
  auto region = client->region_info(kDoorbellHintsRegionIndex);
  ASSERT_TRUE(region.ok());
  void* base = ::mmap(nullptr, region->size, PROT_READ | PROT_WRITE, MAP_SHARED, region->fd.get(),
                      static_cast<off_t>(region->fd_offset));
  ASSERT_NE(base, MAP_FAILED);
  auto* hints = static_cast<DoorbellHints*>(base);
  hints->sq.mark(5);
  with_server([](DeviceServer& s) {
    s.step({});
    EXPECT_FALSE(s.hints_wait()) << "an engine would never sleep";
    return 0;
  });
  EXPECT_TRUE(hints->sq.any());
  ASSERT_TRUE(client->region_io_fds(kDoorbellHintsRegionIndex).ok());
  EXPECT_TRUE(eventually([&] { return !hints->sq.any(); }));
  ::munmap(base, region->size);
}

TEST_F(Regions, HintsAreNotWrittenByMessages) {
  const Status status = client->write_register<std::uint64_t>(kDoorbellHintsRegionIndex, 64, 1);
  EXPECT_EQ(status.error().code, EPERM);
}

TEST_F(Regions, TheWakeEventfdWakesWhoPollsTheServer) {
  auto entries = client->region_io_fds(kDoorbellHintsRegionIndex);
  ASSERT_TRUE(entries.ok());
  ASSERT_EQ(entries->size(), 1U);
  EXPECT_EQ((*entries)[0].offset, 0U);
  const std::lock_guard lock(mutex);
  pollfd entry{server->poll_fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&entry, 1, 0), 0);
  const std::uint64_t one = 1;
  ASSERT_EQ(::write((*entries)[0].fd.get(), &one, sizeof one), 8);
  EXPECT_EQ(::poll(&entry, 1, 0), 1);
  server->on_event();
  EXPECT_EQ(::poll(&entry, 1, 0), 0) << "the event is taken";
}

TEST_F(Regions, OtherRegionsHaveNoEventfds) {
  EXPECT_TRUE(client->region_io_fds(kRegionBar0)->empty());
}

TEST_F(Regions, AFullWakeEventfdDoesNotBlockTheServer) {
  auto entries = client->region_io_fds(kDoorbellHintsRegionIndex);
  const int fd = (*entries)[0].fd.get();
  EXPECT_NE(::fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
  const std::uint64_t most = ~std::uint64_t{0} - 1;
  EXPECT_EQ(::write(fd, &most, sizeof most), 8);
  EXPECT_TRUE(client->device_info().ok());
}

class TrappedUars : public DeviceServerTest {
 protected:
  TrappedUars() : DeviceServerTest(false) {}
};

TEST_F(TrappedUars, NothingOfBarZeroMaps) {
  const auto client = connect();
  const auto bar = client->region_info(kRegionBar0);
  ASSERT_TRUE(bar.ok());
  EXPECT_EQ(bar->flags, kRegionRead | kRegionWrite) << "QEMU posts stores to such a region";
  EXPECT_FALSE(bar->fd);
}

}  // namespace
}  // namespace softhca::emulator::test
