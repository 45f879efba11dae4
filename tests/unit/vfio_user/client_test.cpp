// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/vfio-user/client.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <thread>

#include "tests/unit/vfio_user/fake_device.h"

namespace softhca::vfio_user::test {
namespace {

/// Client memory that is reached by messages.
class Memory final : public DmaMemory {
 public:
  std::vector<std::byte> bytes = std::vector<std::byte>(4096);
  std::errc dma_read(std::uint64_t iova, std::span<std::byte> to) override {
    if (iova + to.size() > bytes.size()) return std::errc::bad_address;
    std::copy_n(bytes.begin() + static_cast<long>(iova), to.size(), to.begin());
    return {};
  }
  std::errc dma_write(std::uint64_t iova, std::span<const std::byte> from) override {
    if (iova + from.size() > bytes.size()) return std::errc::bad_address;
    std::ranges::copy(from, bytes.begin() + static_cast<long>(iova));
    return {};
  }
};

/// Client in the test's thread, server in one of its own.
class ClientTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::array<int, 2> pair{};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()), 0);
    server.adopt(FileDescriptor(pair[0]));
    thread = std::thread([this] { serve(); });
    ClientOptions options;
    options.dma_memory = &memory;
    auto result = Client::connect(FileDescriptor(pair[1]), options);
    ASSERT_TRUE(result.ok()) << result.error().message;
    client = std::move(*result);
  }
  void TearDown() override {
    client.reset();
    thread.join();
  }
  void serve() {
    while (server.connection_fd() >= 0) {
      pollfd entry{server.connection_fd(), POLLIN, 0};
      if (server.wants_write()) entry.events |= POLLOUT;
      ::poll(&entry, 1, -1);
      on_event();
      while (server.on_readable()) {
      }
      on_event();
      server.on_writable();
    }
  }
  virtual void on_event() {}

  FakeDevice device;
  Server server{device};
  Memory memory;
  std::thread thread;
  std::unique_ptr<Client> client;
};

TEST_F(ClientTest, LearnsTheDevice) {
  const auto info = client->device_info();
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->num_regions, 10U);
  EXPECT_EQ(client->irq_info(kIrqMsix)->count, FakeDevice::kMsixCount);
  EXPECT_EQ(client->server_max_fds(), 16U);
}

TEST_F(ClientTest, RegistersOfEveryWidthGoRoundTrip) {
  ASSERT_TRUE(client->write_register<std::uint64_t>(0, 8, 0x1122334455667788).ok());
  EXPECT_EQ(*client->read_register<std::uint64_t>(0, 8), 0x1122334455667788U);
  EXPECT_EQ(*client->read_register<std::uint32_t>(0, 8), 0x55667788U);
  EXPECT_EQ(*client->read_register<std::uint16_t>(0, 8), 0x7788U);
  EXPECT_EQ(*client->read_register<std::uint8_t>(0, 8), 0x88U);
}

TEST_F(ClientTest, APostedWriteIsSeenByTheNextRead) {
  for (std::uint32_t i = 0; i < 1000; ++i) {
    ASSERT_TRUE(client->write_register<std::uint32_t>(0, 16, i, Posting::posted).ok());
  }
  EXPECT_EQ(*client->read_register<std::uint32_t>(0, 16), 999U);
}

TEST_F(ClientTest, ARefusalIsTypedAndTheConnectionGoesOn) {
  const auto result = client->read_register<std::uint32_t>(0, 8192);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().kind, ErrorKind::refused);
  EXPECT_EQ(result.error().code, EINVAL);
  EXPECT_TRUE(client->read_register<std::uint32_t>(0, 0).ok());
}

TEST_F(ClientTest, SparseRegionMaps) {
  auto region = client->region_info(FakeDevice::kSparse);
  ASSERT_TRUE(region.ok()) << region.error().message;
  EXPECT_EQ(region->size, 16384U);
  ASSERT_EQ(region->mmap_areas.size(), 2U);
  EXPECT_EQ(region->mmap_areas[1].offset, 12288U);
  void* base = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, region->fd.get(),
                      static_cast<off_t>(region->fd_offset + region->mmap_areas[1].offset));
  ASSERT_NE(base, MAP_FAILED);
  ::munmap(base, 4096);
}

TEST_F(ClientTest, WholeRegionMapsAndHasAType) {
  auto region = client->region_info(FakeDevice::kTyped);
  ASSERT_TRUE(region.ok());
  ASSERT_EQ(region->mmap_areas.size(), 1U);
  EXPECT_EQ(region->mmap_areas[0].size, 4096U);
  EXPECT_EQ(region->fd_offset, 8192U);
  ASSERT_TRUE(region->type.has_value());
  EXPECT_EQ(region->type->subtype, 8U);
}

TEST_F(ClientTest, GetsEventfdsOfARegion) {
  auto entries = client->region_io_fds(FakeDevice::kTyped);
  ASSERT_TRUE(entries.ok());
  ASSERT_EQ(entries->size(), 2U);
  EXPECT_TRUE((*entries)[0].fd);
  EXPECT_EQ((*entries)[1].offset, 64U);
  EXPECT_EQ((*entries)[1].datamatch, 17U);
}

TEST_F(ClientTest, MoreEventfdsThanOneMessageHoldsAreSplit) {
  const std::vector<int> fds(20, device.event.get());
  ASSERT_TRUE(client->set_irq_eventfds(kIrqMsix, 2, fds).ok());
  ASSERT_EQ(device.irq_requests.size(), 2U);
  EXPECT_EQ(device.irq_requests[0].eventfds.size(), 16U);
  EXPECT_EQ(device.irq_requests[1].start, 18U);
  EXPECT_EQ(device.irq_requests[1].eventfds.size(), 4U);
  EXPECT_TRUE(client->detach_irqs(kIrqMsix, 2, 20).ok());
  EXPECT_TRUE(client->disable_irqs(kIrqMsix).ok());
  EXPECT_TRUE(client->act_on_irqs(kIrqMsix, kIrqSetActionTrigger, 0, 1).ok());
}

TEST_F(ClientTest, MapsAndUnmaps) {
  ASSERT_TRUE(
      client->dma_map(0x1000, 0x1000, kDmaRead | kDmaWrite, device.region_file.get(), 0).ok());
  ASSERT_TRUE(client->dma_map(0x2000, 0x1000, kDmaRead, -1, 0).ok());
  EXPECT_EQ(device.maps.size(), 2U);
  EXPECT_TRUE(client->dma_unmap(0x1000, 0x1000).ok());
  EXPECT_TRUE(client->dma_unmap_all().ok());
  EXPECT_EQ(client->dma_map(0x1000, 0, kDmaRead, -1, 0).error().code, EINVAL);
  EXPECT_TRUE(client->reset().ok());
  EXPECT_EQ(device.resets, 1);
}

TEST_F(ClientTest, StartedMapsComeBeforeWhatFollowsAndSettleTellsOfThem) {
  EXPECT_TRUE(client->settle().ok()) << "there is nothing to wait for";
  ASSERT_TRUE(client->start_dma_map(0x1000, 0x1000, kDmaRead, device.region_file.get(), 0).ok());
  EXPECT_TRUE(client->has_started());
  EXPECT_TRUE(client->device_info().ok()) << "the reply to the map comes first";
  EXPECT_EQ(device.maps.size(), 1U);
  EXPECT_FALSE(client->has_started());
  EXPECT_TRUE(client->settle().ok());
  ASSERT_TRUE(client->start_dma_map(0x3000, 0, kDmaRead, -1, 0).ok());
  ASSERT_TRUE(client->start_dma_map(0x4000, 0x1000, kDmaRead, -1, 0).ok());
  EXPECT_TRUE(client->device_info().ok());
  EXPECT_EQ(client->settle().error().code, EINVAL);
  EXPECT_TRUE(client->device_info().ok());
  EXPECT_EQ(device.maps.size(), 2U);
  EXPECT_TRUE(client->settle().ok()) << "told once";
  EXPECT_TRUE(client->reset().ok()) << "or the end might come while the maps are looked at";
}

TEST_F(ClientTest, ABadDescriptorIsAnErrorOfTheCallOnly) {
  const Status status = client->dma_map(0x1000, 0x1000, kDmaRead, 987'654, 0);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().kind, ErrorKind::system);
  EXPECT_EQ(status.error().code, EBADF);
  EXPECT_TRUE(client->device_info().ok());
}

TEST_F(ClientTest, ManyThreadsShareOneConnection) {
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < 500; ++i) {
        const std::uint64_t value = t << 32 | i;
        if (!client->write_register(0, t * 8, value).ok()) ++failures;
        const auto seen = client->read_register<std::uint64_t>(0, t * 8);
        if (!seen.ok() || *seen != value) ++failures;
      }
    });
  }
  for (auto& thread_of_test : threads) thread_of_test.join();
  EXPECT_EQ(failures, 0);
}

/// The server asks for memory with every event.
class ClientMemory : public ClientTest {
 protected:
  void on_event() override {
    if (server.connection_fd() < 0 || !ask.exchange(false)) return;
    const std::array<std::byte, 2> data{std::byte{0xaa}, std::byte{0xbb}};
    EXPECT_EQ(server.dma_write(100, data, [](std::errc, std::span<const std::byte>) {}),
              std::errc{});
    EXPECT_EQ(server.dma_read(100, 2,
                              [this](std::errc error, std::span<const std::byte> bytes) {
                                result = error;
                                read_back.assign(bytes.begin(), bytes.end());
                                answered = true;
                              }),
              std::errc{});
    EXPECT_EQ(server.dma_read(4095, 2,
                              [this](std::errc error, std::span<const std::byte>) {
                                outside = error;
                                ++faults;
                              }),
              std::errc{});
  }
  std::atomic<bool> ask{false};
  std::atomic<bool> answered{false};
  std::atomic<int> faults{0};
  std::errc result{};
  std::errc outside{};
  std::vector<std::byte> read_back;
};

TEST_F(ClientMemory, AnswersTheServerWhileItWaitsForAReply) {
  ask = true;
  while (!answered || faults == 0) ASSERT_TRUE(client->device_info().ok());
  EXPECT_EQ(result, std::errc{});
  EXPECT_EQ(read_back, (std::vector<std::byte>{std::byte{0xaa}, std::byte{0xbb}}));
  EXPECT_EQ(memory.bytes[101], std::byte{0xbb});
  EXPECT_EQ(outside, std::errc::bad_address);
}

TEST_F(ClientMemory, AnswersTheServerWhenAskedTo) {
  ask = true;
  ASSERT_TRUE(client->write_register<std::uint8_t>(0, 0, 1, Posting::posted).ok());
  while (!answered || faults == 0) {
    pollfd entry{client->fd(), POLLIN, 0};
    ::poll(&entry, 1, 10);
    ASSERT_TRUE(client->serve().ok());
  }
  EXPECT_EQ(result, std::errc{});
}

}  // namespace
}  // namespace softhca::vfio_user::test
