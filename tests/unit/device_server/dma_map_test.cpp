// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <string>

#include "hw-model/device/config_space.h"
#include "tests/unit/device_server/server_fixture.h"

namespace softhca::emulator::test {
namespace {

using namespace vfio_user;

FileDescriptor memfd(std::size_t size, int seals) {
  FileDescriptor fd(::memfd_create("guest", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(size)), 0);
  EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

class DmaMap : public DeviceServerTest {
 protected:
  void SetUp() override {
    DeviceServerTest::SetUp();
    client = connect();
    ASSERT_TRUE(client);
    set_command(kMemoryAndBusMaster);  // As every driver does: until then no request is made.
  }
  void TearDown() override {
    client.reset();
    DeviceServerTest::TearDown();
  }
  static constexpr std::uint16_t kMemory = 2;
  static constexpr std::uint16_t kMemoryAndBusMaster = 6;
  void set_command(std::uint16_t value) {
    ASSERT_TRUE(client->write_register(kRegionConfig, ConfigSpace::kCommand, value).ok());
  }
  int map(std::uint64_t iova, std::uint64_t size, int fd, std::uint64_t offset = 0,
          std::uint32_t flags = kDmaRead | kDmaWrite) {
    const Status status = client->dma_map(iova, size, flags, fd, offset);
    return status.ok() ? 0 : status.error().code;
  }
  std::byte* span(std::uint64_t iova, std::uint64_t length, DmaAccess access = DmaAccess::write) {
    return with_server(
        [&](DeviceServer& s) { return s.function().dma().try_span(iova, length, access); });
  }
  DmaStatus device_writes(std::uint64_t iova, std::uint64_t value) {
    return with_server([&](DeviceServer& s) { return s.function().dma().write(iova, &value, 8); });
  }
  DmaStatus device_reads(std::uint64_t iova, std::uint64_t& value) {
    return with_server([&](DeviceServer& s) { return s.function().dma().read(iova, &value, 8); });
  }
  std::unique_ptr<Client> client;
};

TEST_F(DmaMap, ASealedMemfdIsMappedAndItsDescriptorClosed) {
  const FileDescriptor fd = memfd(65536, F_SEAL_SHRINK);
  const std::size_t before = open_fds();
  ASSERT_EQ(map(0x100000, 8192, fd.get(), 4096), 0);
  EXPECT_EQ(open_fds(), before);
  std::byte* bytes = span(0x100000, 8192);
  ASSERT_NE(bytes, nullptr);
  ASSERT_EQ(device_writes(0x100008, 0x1234), DmaStatus::ok);
  std::uint64_t seen = 0;
  ASSERT_EQ(::pread(fd.get(), &seen, 8, 4096 + 8), 8);
  EXPECT_EQ(seen, 0x1234U);
}

TEST_F(DmaMap, WithBusMasteringOffTheDeviceReachesNothing) {
  const FileDescriptor fd = memfd(65536, F_SEAL_SHRINK);
  ASSERT_EQ(map(0x100000, 8192, fd.get(), 4096), 0);
  set_command(kMemory);
  EXPECT_EQ(span(0x100000, 8), nullptr);
  EXPECT_EQ(device_writes(0x100000, 7), DmaStatus::pending);
  set_command(kMemoryAndBusMaster);
  EXPECT_EQ(device_writes(0x100000, 7), DmaStatus::ok);
  ASSERT_TRUE(client->reset().ok());
  EXPECT_EQ(device_writes(0x100000, 8), DmaStatus::pending) << "as after power on";
}

TEST_F(DmaMap, AnUnalignedOffsetIsMappedToo) {
  const FileDescriptor fd = memfd(65536, F_SEAL_SHRINK);
  ASSERT_EQ(map(0x100000, 100, fd.get(), 4100), 0);
  ASSERT_EQ(device_writes(0x100000, 77), DmaStatus::ok);
  std::uint64_t seen = 0;
  ASSERT_EQ(::pread(fd.get(), &seen, 8, 4100), 8);
  EXPECT_EQ(seen, 77U);
}

TEST_F(DmaMap, AccessRightsAreKept) {
  const FileDescriptor fd = memfd(8192, F_SEAL_SHRINK);
  ASSERT_EQ(map(0x100000, 4096, fd.get(), 0, kDmaRead), 0);
  EXPECT_EQ(span(0x100000, 8, DmaAccess::write), nullptr);
  EXPECT_NE(span(0x100000, 8, DmaAccess::read), nullptr);
  EXPECT_EQ(device_writes(0x100000, 1), DmaStatus::fault);
}

TEST_F(DmaMap, AMemfdThatMayShrinkIsReachedByCallsAndFaultsWhenItDoes) {
  const FileDescriptor fd = memfd(65536, 0);
  ASSERT_EQ(map(0x100000, 65536, fd.get()), 0);
  EXPECT_EQ(span(0x100000, 8), nullptr);
  EXPECT_EQ(device_writes(0x100000 + 32768, 5), DmaStatus::ok);
  ASSERT_EQ(::ftruncate(fd.get(), 4096), 0);
  std::uint64_t value = 0;
  EXPECT_EQ(device_reads(0x100000 + 32768, value), DmaStatus::fault);
  EXPECT_EQ(device_reads(0x100000, value), DmaStatus::ok);
}

TEST_F(DmaMap, ASealedMemfdThatIsTooShortIsNotMapped) {
  const FileDescriptor fd = memfd(4096, F_SEAL_SHRINK);
  ASSERT_EQ(map(0x100000, 8192, fd.get()), 0);
  EXPECT_EQ(span(0x100000, 8), nullptr);
  std::uint64_t value = 0;
  EXPECT_EQ(device_reads(0x100000, value), DmaStatus::ok);
  EXPECT_EQ(device_reads(0x101000, value), DmaStatus::fault);
}

TEST_F(DmaMap, AnApplicationsMemoryIsReachedThroughProcSelfMem) {
  std::uint64_t variable = 41;
  const FileDescriptor fd(::open("/proc/self/mem", O_RDWR | O_CLOEXEC));
  const auto address = reinterpret_cast<std::uint64_t>(&variable);
  const std::uint64_t page = address / 4096 * 4096;
  ASSERT_EQ(map(0x200000, 4096, fd.get(), page), 0);
  std::uint64_t value = 0;
  ASSERT_EQ(device_reads(0x200000 + (address - page), value), DmaStatus::ok);
  EXPECT_EQ(value, 41U);
  ASSERT_EQ(device_writes(0x200000 + (address - page), 42), DmaStatus::ok);
  EXPECT_EQ(*const_cast<volatile std::uint64_t*>(&variable), 42U);
}

TEST_F(DmaMap, ThousandsOfRegistrationsOfOneProcessHoldOneDescriptor) {
  const FileDescriptor fd(::open("/proc/self/mem", O_RDWR | O_CLOEXEC));
  const std::size_t before = open_fds();
  for (std::uint64_t i = 0; i < 3000; ++i) {
    ASSERT_EQ(map(0x1000000 + i * 0x2000, 0x1000, fd.get(), 0x10000 + i * 0x1000), 0);
  }
  EXPECT_EQ(range_count(), 3000U);
  EXPECT_EQ(open_fds(), before + 1);
  for (std::uint64_t i = 0; i < 3000; ++i) {
    ASSERT_TRUE(client->dma_unmap(0x1000000 + i * 0x2000, 0x1000).ok());
  }
  EXPECT_EQ(range_count(), 0U);
  EXPECT_EQ(open_fds(), before);
}

TEST_F(DmaMap, ThousandsOfPagesOfAGuestTakeOneMapping) {
  constexpr std::uint64_t kPages = 3000;
  const FileDescriptor fd = memfd(kPages * 4096, F_SEAL_SHRINK | F_SEAL_GROW);
  const auto mappings = [] {
    std::ifstream maps("/proc/self/maps");
    int count = 0;
    for (std::string line; std::getline(maps, line);)
      count += line.find("memfd:guest") != std::string::npos ? 1 : 0;
    return count;
  };
  const std::size_t before = open_fds();
  // Behind a virtual IOMMU neighbouring addresses are pages from anywhere.
  const auto page_of = [](std::uint64_t i) { return i * 7 % kPages; };
  for (std::uint64_t i = 0; i < kPages; ++i) {
    ASSERT_EQ(map(0x1000000 + i * 0x1000, 0x1000, fd.get(), page_of(i) * 4096), 0);
  }
  EXPECT_EQ(range_count(), kPages);
  EXPECT_EQ(mappings(), 1);
  EXPECT_EQ(open_fds(), before);
  for (const std::uint64_t i : {std::uint64_t{0}, std::uint64_t{1}, kPages / 2, kPages - 1}) {
    ASSERT_EQ(device_writes(0x1000000 + i * 0x1000, i + 1), DmaStatus::ok);
    std::uint64_t seen = 0;
    ASSERT_EQ(::pread(fd.get(), &seen, 8, static_cast<off_t>(page_of(i) * 4096)), 8);
    EXPECT_EQ(seen, i + 1);
  }
  ASSERT_TRUE(client->dma_unmap(0x1000000, 0x1000).ok());
  EXPECT_EQ(span(0x1000000, 8), nullptr) << "the mapping stays, the right to use it does not";
  EXPECT_EQ(device_writes(0x1000000, 1), DmaStatus::fault);
  ASSERT_TRUE(client->dma_unmap_all().ok());
  EXPECT_EQ(mappings(), 0);
}

TEST_F(DmaMap, ADescriptorThatMayOnlyReadGivesNoMoreThanThat) {
  const FileDescriptor fd = memfd(8192, F_SEAL_SHRINK | F_SEAL_GROW);
  ASSERT_EQ(map(0x100000, 4096, fd.get()), 0);
  const FileDescriptor readable(
      ::open(("/proc/self/fd/" + std::to_string(fd.get())).c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(readable);
  ASSERT_EQ(map(0x200000, 4096, readable.get(), 4096, kDmaRead | kDmaWrite), 0);
  std::uint64_t value = 1;
  EXPECT_EQ(device_reads(0x200000, value), DmaStatus::ok);
  EXPECT_EQ(device_writes(0x200000, 1), DmaStatus::fault);
}

TEST_F(DmaMap, OverlapsAreRefused) {
  const FileDescriptor fd = memfd(65536, F_SEAL_SHRINK);
  ASSERT_EQ(map(0x100000, 0x4000, fd.get()), 0);
  EXPECT_EQ(map(0x100000, 0x4000, fd.get()), EEXIST);
  EXPECT_EQ(map(0x0ff000, 0x2000, fd.get()), EEXIST);
  EXPECT_EQ(map(0x103fff, 1, fd.get()), EEXIST);
  EXPECT_EQ(map(0x0ff000, 0x10000, fd.get()), EEXIST);
  EXPECT_EQ(map(0x104000, 0x1000, fd.get()), 0);
  EXPECT_EQ(range_count(), 2U);
}

TEST_F(DmaMap, UnmapTakesWholeMapsOnly) {
  const FileDescriptor fd = memfd(65536, F_SEAL_SHRINK);
  ASSERT_EQ(map(0x100000, 0x4000, fd.get()), 0);
  EXPECT_EQ(client->dma_unmap(0x100000, 0x1000).error().code, EINVAL);
  EXPECT_EQ(client->dma_unmap(0x500000, 0x1000).error().code, ENOENT);
  EXPECT_TRUE(client->dma_unmap(0x100000, 0x4000).ok());
  EXPECT_EQ(span(0x100000, 1), nullptr);
  ASSERT_EQ(map(0x100000, 0x4000, fd.get()), 0);
  EXPECT_TRUE(client->dma_unmap_all().ok());
  EXPECT_EQ(range_count(), 0U);
}

TEST_F(DmaMap, DescriptorsThatCouldBlockTheEmulatorAreRefusedAndClosed) {
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
  const FileDescriptor read_end(pipe[0]);
  const FileDescriptor write_end(pipe[1]);
  const FileDescriptor null(::open("/dev/zero", O_RDWR | O_CLOEXEC));
  const FileDescriptor folder_fd(::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const std::size_t before = open_fds();
  for (const int fd :
       {read_end.get(), write_end.get(), null.get(), folder_fd.get(), client->fd()}) {
    EXPECT_EQ(map(0x100000, 0x1000, fd), EINVAL);
  }
  EXPECT_EQ(open_fds(), before);
  EXPECT_EQ(range_count(), 0U);
}

TEST_F(DmaMap, HugeRangesCostNothingUntilTouched) {
  const FileDescriptor fd = memfd(1ULL << 40, F_SEAL_SHRINK);
  EXPECT_EQ(map(1ULL << 41, 1ULL << 40, fd.get()), 0);
  EXPECT_EQ(map(1ULL << 50, 1ULL << 49, -1), 0);
  EXPECT_EQ(device_writes((1ULL << 41) + (1ULL << 39), 3), DmaStatus::ok);
}

TEST_F(DmaMap, TheNumberOfMapsIsBounded) {
  with_server([](DeviceServer& s) {
    DmaSpace::Range range;
    range.size = 1;
    static std::byte somewhere;
    range.base = &somewhere;
    for (std::uint64_t i = 0; i < kDefaultMaxDmaMaps; ++i) {
      range.iova = i * 2;
      EXPECT_EQ(s.function().dma().map(range), std::errc{});
    }
    return 0;
  });
  EXPECT_EQ(map(1ULL << 40, 4096, -1), ENOSPC);
}

TEST_F(DmaMap, ReadOnlyDescriptorsFaultOnWriteInsteadOfFailingLater) {
  const FileDescriptor writable = memfd(8192, F_SEAL_SHRINK);
  const std::string name = "/proc/self/fd/" + std::to_string(writable.get());
  const FileDescriptor fd(::open(name.c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(fd);
  ASSERT_EQ(map(0x100000, 4096, fd.get()), 0);
  EXPECT_EQ(device_writes(0x100000, 1), DmaStatus::fault);
  std::uint64_t value = 1;
  EXPECT_EQ(device_reads(0x100000, value), DmaStatus::ok);
}

}  // namespace
}  // namespace softhca::emulator::test
