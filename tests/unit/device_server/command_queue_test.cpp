// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>

#include "hw-model/prm/command_queue.h"
#include "hw-model/prm/opcodes.h"
#include "tests/unit/device_server/server_fixture.h"

namespace softhca::emulator::test {
namespace {

using namespace vfio_user;

constexpr std::uint64_t kQueue = 0x100000;  // IOVA of the command queue.

/// Host memory behind kQueue that the device can only ask for.
class RemoteMemory final : public DmaMemory {
 public:
  std::array<std::byte, 8192> bytes{};
  std::atomic<int> reads{0};
  std::atomic<int> writes{0};
  std::errc dma_read(std::uint64_t iova, std::span<std::byte> to) override {
    if (!inside(iova, to.size())) return std::errc::bad_address;
    std::copy_n(bytes.begin() + static_cast<long>(iova - kQueue), to.size(), to.begin());
    ++reads;
    return {};
  }
  std::errc dma_write(std::uint64_t iova, std::span<const std::byte> from) override {
    if (!inside(iova, from.size())) return std::errc::bad_address;
    std::ranges::copy(from, bytes.begin() + static_cast<long>(iova - kQueue));
    ++writes;
    return {};
  }

 private:
  bool inside(std::uint64_t iova, std::size_t size) const {
    return iova >= kQueue && iova - kQueue <= bytes.size() &&
           size <= bytes.size() - (iova - kQueue);
  }
};

/// The device runs its first firmware command out of memory of three kinds.
class CommandQueue : public DeviceServerTest {
 protected:
  void SetUp() override {
    DeviceServerTest::SetUp();
    ClientOptions options;
    options.dma_memory = &remote;
    client = connect(options);
    ASSERT_TRUE(client);
    ASSERT_TRUE(client->write_register<std::uint16_t>(kRegionConfig, 4, 0x0006).ok());
  }
  void TearDown() override {
    client.reset();
    DeviceServerTest::TearDown();
  }
  /// A command of 16 bytes in and out in slot 0.
  static void put_command(std::byte* entry,
                          prm::CommandOpcode opcode = prm::CommandOpcode::enable_hca) {
    std::fill_n(entry, 64, std::byte{0});
    entry[0] = std::byte{prm::kCommandTransportPci};
    entry[7] = std::byte{16};  // input length
    entry[0x10] = static_cast<std::byte>(static_cast<unsigned>(opcode) >> 8);
    entry[0x11] = static_cast<std::byte>(opcode);
    entry[0x3b] = std::byte{16};  // output length
    entry[0x3f] = std::byte{1};   // owned by hardware
  }
  void ring() {
    ASSERT_TRUE(client->write_register<std::uint32_t>(kRegionBar0, 0x10, 0).ok());
    ASSERT_TRUE(
        client->write_register<std::uint32_t>(kRegionBar0, 0x14, __builtin_bswap32(kQueue)).ok());
    ASSERT_TRUE(client
                    ->write_register<std::uint32_t>(kRegionBar0, 0x18, __builtin_bswap32(1),
                                                    Posting::posted)
                    .ok());
  }
  template <typename Owner>
  void expect_done(Owner&& owner_byte, const std::byte* entry) {
    ASSERT_TRUE(eventually([&] {
      EXPECT_TRUE(client->serve().ok());
      return owner_byte() == std::byte{0};
    })) << "the command was never handed back";
    EXPECT_EQ(entry[0x20], std::byte{0}) << "status OK";
  }

  RemoteMemory remote;
  std::unique_ptr<Client> client;
};

TEST_F(CommandQueue, InASealedMemfd) {
  const FileDescriptor fd(::memfd_create("queue", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(fd.get(), 8192), 0);
  ASSERT_EQ(::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  void* base = ::mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  ASSERT_NE(base, MAP_FAILED);
  auto* entry = static_cast<std::byte*>(base);
  ASSERT_TRUE(client->dma_map(kQueue, 8192, kDmaRead | kDmaWrite, fd.get(), 0).ok());
  put_command(entry);
  ring();
  expect_done([&] { return static_cast<volatile std::byte*>(entry)[0x3f]; }, entry);
  ::munmap(base, 8192);
}

TEST_F(CommandQueue, InAnApplicationsOwnMemory) {
  alignas(4096) static std::array<std::byte, 8192> memory;
  const FileDescriptor fd(::open("/proc/self/mem", O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(client
                  ->dma_map(kQueue, 8192, kDmaRead | kDmaWrite, fd.get(),
                            reinterpret_cast<std::uint64_t>(memory.data()))
                  .ok());
  put_command(memory.data());
  ring();
  expect_done([&] { return static_cast<volatile std::byte*>(memory.data())[0x3f]; }, memory.data());
}

TEST_F(CommandQueue, InMemoryReachedByMessages) {
  ASSERT_TRUE(client->dma_map(kQueue, 8192, kDmaRead | kDmaWrite, -1, 0).ok());
  put_command(remote.bytes.data());
  ring();
  expect_done([&] { return remote.bytes[0x3f]; }, remote.bytes.data());
  EXPECT_GT(remote.reads, 0);
  EXPECT_GT(remote.writes, 0);
}

TEST_F(CommandQueue, InMemoryReachedByMessagesManyTimes) {
  ASSERT_TRUE(client->dma_map(kQueue, 8192, kDmaRead | kDmaWrite, -1, 0).ok());
  for (int i = 0; i < 200; ++i) {
    // The slot is filled again at once: what was read of it before must not be believed again.
    put_command(remote.bytes.data(),
                i % 2 == 0 ? prm::CommandOpcode::enable_hca : prm::CommandOpcode::disable_hca);
    ring();
    ASSERT_NO_FATAL_FAILURE(expect_done([&] { return remote.bytes[0x3f]; }, remote.bytes.data()))
        << i;
  }
}

TEST_F(CommandQueue, OfAClientThatRefusesItsMemoryDoesNotHoldTheDevice) {
  ASSERT_TRUE(client->dma_map(0x900000, 8192, kDmaRead | kDmaWrite, -1, 0).ok());
  ASSERT_TRUE(client->write_register<std::uint32_t>(kRegionBar0, 0x10, 0).ok());
  ASSERT_TRUE(
      client->write_register<std::uint32_t>(kRegionBar0, 0x14, __builtin_bswap32(0x900000)).ok());
  ASSERT_TRUE(client->write_register<std::uint32_t>(kRegionBar0, 0x18, __builtin_bswap32(1)).ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_TRUE(client->device_info().ok());
}

TEST_F(CommandQueue, AClientThatVanishesInTheMiddleDoesNotHoldTheDevice) {
  ASSERT_TRUE(client->dma_map(kQueue, 8192, kDmaRead | kDmaWrite, -1, 0).ok());
  put_command(remote.bytes.data());
  ring();
  client.reset();
  ASSERT_TRUE(disconnected());
  client = connect();
  EXPECT_TRUE(client->device_info().ok());
}

}  // namespace
}  // namespace softhca::emulator::test
