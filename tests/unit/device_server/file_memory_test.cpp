// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/device-server/file_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <vector>

namespace softhca::emulator::test {
namespace {

using vfio_user::DmaMapRequest;
using vfio_user::FileDescriptor;

class FileMemoryTest : public ::testing::Test {
 protected:
  static FileDescriptor file(std::size_t size) {
    FileDescriptor fd(::memfd_create("file", MFD_CLOEXEC));
    EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(size)), 0);
    return fd;
  }
  std::shared_ptr<DmaBacking> open(int fd) {
    DmaMapRequest request;
    request.size = 4096;
    request.readable = request.writable = true;
    request.fd = FileDescriptor(fd);
    DmaSpace::Range range;
    EXPECT_EQ(table.open(std::move(request), range), std::errc{});
    EXPECT_EQ(range.base, nullptr);
    return range.backing;
  }
  FileMemoryTable table;
};

TEST_F(FileMemoryTest, ShortFilesFaultWithoutReadingAround) {
  FileMemory memory(file(100), DmaStatus::fault);
  std::vector<std::byte> bytes(100);
  EXPECT_EQ(memory.read(0, bytes.data(), 100), DmaStatus::ok);
  EXPECT_EQ(memory.read(1, bytes.data(), 100), DmaStatus::fault);
  EXPECT_EQ(memory.read(100, bytes.data(), 1), DmaStatus::fault);
  EXPECT_EQ(memory.read(~std::uint64_t{0}, bytes.data(), 1), DmaStatus::fault);
  EXPECT_EQ(memory.read(std::uint64_t{1} << 63, bytes.data(), 1), DmaStatus::fault);
  EXPECT_EQ(memory.write((std::uint64_t{1} << 63) - 1, bytes.data(), 2), DmaStatus::fault);
}

TEST_F(FileMemoryTest, UnmappedMemoryOfAProcessFaults) {
  FileMemory memory(FileDescriptor(::open("/proc/self/mem", O_RDWR | O_CLOEXEC)), DmaStatus::fault);
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* two = ::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(two, MAP_FAILED);
  ASSERT_EQ(::munmap(static_cast<char*>(two) + page, page), 0);
  std::vector<std::byte> bytes(2 * page);
  const auto address = reinterpret_cast<std::uint64_t>(two);
  EXPECT_EQ(memory.read(address, bytes.data(), page), DmaStatus::ok);
  EXPECT_EQ(memory.write(address, bytes.data(), page), DmaStatus::ok);
  EXPECT_EQ(memory.read(address, bytes.data(), 2 * page), DmaStatus::fault);
  ::munmap(two, page);
}

TEST_F(FileMemoryTest, OneOpenFileIsHeldOnceHoweverOftenItIsSent) {
  const FileDescriptor fd = file(8192);
  const auto first = open(::dup(fd.get()));
  const auto second = open(::dup(fd.get()));
  EXPECT_EQ(first, second);
  EXPECT_EQ(table.open_files(), 1U);
}

TEST_F(FileMemoryTest, OneFileOpenedTwiceIsTwo) {
  const FileDescriptor fd(::open("/proc/self/mem", O_RDWR | O_CLOEXEC));
  const auto first = open(::dup(fd.get()));
  const auto second = open(::open("/proc/self/mem", O_RDWR | O_CLOEXEC));
  EXPECT_NE(first, second) << "after exec() the same file is another memory";
  EXPECT_EQ(table.open_files(), 2U);
}

TEST_F(FileMemoryTest, TheFilePositionIsLeftAsItWas) {
  const FileDescriptor fd = file(8192);
  ::lseek(fd.get(), 123, SEEK_SET);
  const auto first = open(::dup(fd.get()));
  const auto second = open(::dup(fd.get()));
  EXPECT_EQ(::lseek(fd.get(), 0, SEEK_CUR), 123);
}

TEST_F(FileMemoryTest, AnUnusedFileIsClosed) {
  const FileDescriptor fd = file(8192);
  { const auto used = open(::dup(fd.get())); }
  EXPECT_EQ(table.open_files(), 0U);
}

}  // namespace
}  // namespace softhca::emulator::test
