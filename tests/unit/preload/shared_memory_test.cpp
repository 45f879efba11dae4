// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fake_device.h"
#include "kernel-shim/protocol/guarded_descriptor.h"
#include "kernel-shim/protocol/protocol.h"

namespace softhca::shim::test {
namespace {

volatile std::uint64_t* allocate(std::size_t pages) {
  void* memory = nullptr;
  if (::posix_memalign(&memory, kPage, pages * kPage) != 0) std::abort();
  std::memset(memory, 0x11, pages * kPage);
  return static_cast<volatile std::uint64_t*>(memory);
}

void release(volatile std::uint64_t* memory) {
  std::free(const_cast<std::uint64_t*>(memory));
}

int share_pages(int fd, volatile std::uint64_t* memory, std::size_t pages, ShareResult& result) {
  return share(fd, const_cast<std::uint64_t*>(memory), pages * kPage, result);
}

TEST(SharedMemory, KeepsItsContentAndIsSeenByBothSides) {
  const Device device;
  volatile std::uint64_t* memory = allocate(4);
  ShareResult result;
  for (std::uint64_t value = 41; value < 44; ++value) {
    memory[0] = value;
    ASSERT_EQ(share_pages(device.fd(), memory, 4, result), 0);
    EXPECT_EQ(result.flags, kFlagShared);
    EXPECT_EQ(result.value, value) << "the daemon sees what the application stored";
    EXPECT_EQ(memory[0], value + 1) << "the application sees what the daemon stored";
    EXPECT_EQ(memory[3 * kPage / 8], 0x1111111111111111U);
  }
  release(memory);
}

TEST(SharedMemory, ClearsDoorbellRecordsWhereAsked) {
  const Device device;
  volatile std::uint64_t* memory = allocate(1);
  memory[8] = 77;
  ShareResult result;
  ASSERT_EQ(share(device.fd(), const_cast<std::uint64_t*>(memory), kPage, result,
                  const_cast<std::uint64_t*>(memory + 8)),
            0);
  EXPECT_EQ(memory[8], 0U);
  release(memory);
}

TEST(SharedMemory, OverlappingRangesKeepSharedPagesAsTheyAre) {
  const Device device;
  volatile std::uint64_t* memory = allocate(3);
  ShareResult result;
  ASSERT_EQ(share_pages(device.fd(), memory + kPage / 8, 1, result), 0);
  memory[kPage / 8] = 5;
  memory[0] = 9;
  ASSERT_EQ(share_pages(device.fd(), memory, 3, result), 0);
  EXPECT_EQ(result.value, 9U);
  EXPECT_EQ(memory[kPage / 8], 5U);
  release(memory);
}

TEST(SharedMemory, FreedAndAllocatedAgainWorksManyTimes) {
  const Device device;
  for (int round = 0; round < 50; ++round) {
    const std::size_t pages = 1 + static_cast<std::size_t>(round) * 7 % 64;
    volatile std::uint64_t* memory = allocate(pages);
    memory[0] = 100;
    ShareResult result;
    ASSERT_EQ(share_pages(device.fd(), memory, pages, result), 0);
    ASSERT_EQ(result.value, 100U);
    ASSERT_EQ(memory[0], 101U);
    release(memory);
    std::vector<std::vector<char>> other(20, std::vector<char>(3000, 'x'));
    ASSERT_EQ(other.back().back(), 'x');
  }
}

TEST(SharedMemory, ThreadsShareAtOnce) {
  const Device device;
  std::atomic<int> failures = 0;
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 30; ++round) {
        volatile std::uint64_t* memory = allocate(3);
        memory[0] = 7;
        ShareResult result;
        if (share_pages(device.fd(), memory, 3, result) != 0 || result.value != 7 ||
            memory[0] != 8) {
          ++failures;
        }
        release(memory);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
}

TEST(SharedMemory, AChildDoesNotSeeOrDisturbItsParent) {
  const Device device;
  volatile std::uint64_t* memory = allocate(2);
  memory[0] = 1;
  ShareResult result;
  ASSERT_EQ(share_pages(device.fd(), memory, 2, result), 0);
  int to_child[2];
  ASSERT_EQ(::pipe(to_child), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    char byte = 0;
    if (::read(to_child[0], &byte, 1) != 1) ::_exit(1);
    if (memory[0] != 2) ::_exit(2);  // What the parent had at fork(), not what it stored since.
    memory[0] = 1000;
    // The child is a process of its own: its context and its shared memory work, too.
    const Device own;
    volatile std::uint64_t* mine = allocate(1);
    mine[0] = 20;
    ShareResult shared;
    if (share_pages(own.fd(), mine, 1, shared) != 0 || shared.value != 20 || mine[0] != 21) {
      ::_exit(3);
    }
    ::_exit(0);
  }
  memory[0] = 500;
  ASSERT_EQ(::write(to_child[1], "x", 1), 1);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(memory[0], 500U);
  ASSERT_EQ(share_pages(device.fd(), memory, 2, result), 0);
  EXPECT_EQ(result.value, 500U);
  release(memory);
  ::close(to_child[0]);
  ::close(to_child[1]);
}

TEST(SharedMemory, ReadsAsZeroAfterTheAllocatorDiscardsIt) {
  const Device device;
  volatile std::uint64_t* memory = allocate(3);
  ShareResult result;
  ASSERT_EQ(share_pages(device.fd(), memory + kPage / 8, 1, result), 0);
  ASSERT_EQ(::madvise(const_cast<std::uint64_t*>(memory), 2 * kPage, MADV_DONTNEED), 0);
  EXPECT_EQ(memory[0], 0U);
  EXPECT_EQ(memory[kPage / 8], 0U);
  EXPECT_EQ(memory[2 * kPage / 8], 0x1111111111111111U);
  release(memory);
}

TEST(SharedMemory, UnmappedMemoryIsEfault) {
  const Device device;
  void* hole = ::mmap(nullptr, 2 * kPage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ::munmap(hole, 2 * kPage);
  ShareResult result;
  EXPECT_EQ(share(device.fd(), hole, 2 * kPage, result), EFAULT);
}

TEST(SharedMemory, MemoryThatCannotBeSwappedIsReportedToTheDaemon) {
  const Device device;
  void* foreign = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ShareResult result;
  ASSERT_EQ(share(device.fd(), foreign, kPage, result), 0);
  EXPECT_EQ(result.flags, kFlagUnshared);
  ::munmap(foreign, kPage);
}

TEST(SharedMemory, SurvivesProgramsThatCloseAllDescriptors) {
  const pid_t child = ::fork();
  if (child == 0) {
    const Device device;
    volatile std::uint64_t* memory = allocate(1);
    ShareResult result;
    if (share_pages(device.fd(), memory, 1, result) != 0) ::_exit(1);
    for (int fd = device.fd() + 1; fd < 2000; ++fd) ::close(fd);
    ::closefrom(device.fd() + 1);
    memory[0] = 3;
    if (share_pages(device.fd(), memory, 1, result) != 0 || result.value != 3) ::_exit(2);
    for (int fd = 600; fd < 800; ++fd) {
      if (::dup2(0, fd) != fd) ::_exit(3);
    }
    memory[0] = 4;
    if (share_pages(device.fd(), memory, 1, result) != 0 || result.value != 4) ::_exit(4);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(GuardedDescriptor, OfAnotherLibraryIsNotClosedAndMakesRoom) {
  // By name, as an executable does not bind weak symbols at run time.
  const auto guard = reinterpret_cast<decltype(&softhca_guard_descriptor)>(
      ::dlsym(RTLD_DEFAULT, "softhca_guard_descriptor"));
  const auto unguard = reinterpret_cast<decltype(&softhca_unguard_descriptor)>(
      ::dlsym(RTLD_DEFAULT, "softhca_unguard_descriptor"));
  ASSERT_TRUE(guard != nullptr && unguard != nullptr);
  const int wake = ::eventfd(0, EFD_NONBLOCK);
  std::atomic<int> holder{-1};
  guard(&holder, wake);
  EXPECT_EQ(::close(holder), -1);
  EXPECT_EQ(errno, EBADF);
  const int wanted = holder;
  ASSERT_EQ(::dup2(STDERR_FILENO, wanted), wanted) << "the application may choose any number";
  EXPECT_NE(holder, wanted);
  EXPECT_EQ(::eventfd_write(holder, 1), 0);
  ::close(wanted);
  const int taken = unguard(&holder);
  EXPECT_EQ(holder, -1);
  eventfd_t count = 0;
  EXPECT_EQ(::eventfd_read(taken, &count), 0);
  EXPECT_EQ(::close(taken), 0);
}

}  // namespace
}  // namespace softhca::shim::test
