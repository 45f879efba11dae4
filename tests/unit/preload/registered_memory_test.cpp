// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause

/// Memory that the application goes on using while and after it is shared: registered regions.

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fake_device.h"
#include "kernel-shim/protocol/protocol.h"
#include "registered_region.h"

namespace softhca::shim::test {
namespace {

TEST(RegisteredMemory, StacksStayPrivate) {
  const Device device;
  alignas(kPage) char on_main_stack[kPage];
  std::memset(on_main_stack, 1, sizeof(on_main_stack));
  EXPECT_EQ(share_in_use(device, on_main_stack, kPage), kFlagUnshared);
  std::atomic<char*> others = nullptr;
  std::atomic<bool> stop = false;
  std::uint64_t own = 0;
  std::thread thread([&] {
    alignas(kPage) char on_stack[kPage];
    std::memset(on_stack, 1, sizeof(on_stack));
    own = share_in_use(device, on_stack, kPage);
    others = on_stack;
    while (!stop) std::this_thread::yield();
  });
  while (others == nullptr) std::this_thread::yield();
  EXPECT_EQ(share_in_use(device, others, kPage), kFlagUnshared);
  stop = true;
  thread.join();
  EXPECT_EQ(own, kFlagUnshared);
}

TEST(RegisteredMemory, ProgramCodeStaysPrivate) {
  const Device device;
  const auto code = reinterpret_cast<std::uintptr_t>(&share_in_use) & ~(kPage - 1);
  EXPECT_EQ(share_in_use(device, reinterpret_cast<void*>(code), kPage), kFlagUnshared);
}

/// Two neighbours of 256 KiB, both shared; the first holds 1, the second 2.
char* shared_neighbours(const Device& device, std::size_t pages) {
  char* memory = map_pages(2 * pages);
  std::memset(memory, 1, pages * kPage);
  std::memset(memory + pages * kPage, 2, pages * kPage);
  EXPECT_EQ(share_in_use(device, memory, 2 * pages * kPage), kFlagShared);
  memory[0] = 1;  // The fake daemon has added one.
  return memory;
}

TEST(RegisteredMemory, AMappingThatMovesAndGrowsDoesNotShowItsNeighbour) {
  constexpr std::size_t kPages = 64;
  const Device device;
  char* first = shared_neighbours(device, kPages);
  char* second = first + kPages * kPage;
  auto* moved =
      static_cast<char*>(::mremap(first, kPages * kPage, 2 * kPages * kPage, MREMAP_MAYMOVE));
  ASSERT_NE(moved, MAP_FAILED);
  EXPECT_EQ(std::count(moved, moved + kPages * kPage, 1), kPages * kPage);
  EXPECT_EQ(std::count(moved + kPages * kPage, moved + 2 * kPages * kPage, 0), kPages * kPage);
  std::memset(moved, 7, 2 * kPages * kPage);
  EXPECT_EQ(std::count(second, second + kPages * kPage, 2), kPages * kPage);
  ::munmap(moved, 2 * kPages * kPage);
  ::munmap(second, kPages * kPage);
}

// The word in front of a block of the heap is the allocator's own.
__attribute__((no_sanitize_address)) std::size_t load_word(std::uintptr_t at) {
  return *reinterpret_cast<volatile std::size_t*>(at);
}
__attribute__((no_sanitize_address)) void store_word(std::uintptr_t at, std::size_t value) {
  *reinterpret_cast<volatile std::size_t*>(at) = value;
}

TEST(RegisteredMemory, AGrowingBlockOfTheHeapDoesNotShowItsNeighbour) {
  constexpr std::size_t kSize = 1 << 20;
  const Device device;
  // Blocks this large are mappings of their own, moved by mremap() when they grow.
  auto* second = static_cast<char*>(std::malloc(kSize));
  auto* first = static_cast<char*>(std::malloc(kSize));
  std::memset(first, 1, kSize);
  std::memset(second, 2, kSize);
  for (char* block : {first, second}) {
    const auto begin = reinterpret_cast<std::uintptr_t>(block) & ~(kPage - 1);
    const auto end = (reinterpret_cast<std::uintptr_t>(block) + kSize + kPage - 1) & ~(kPage - 1);
    ShareResult result;
    // The fake daemon adds one to the first word, which the C library keeps for itself.
    const std::size_t before = load_word(begin);
    ASSERT_EQ(share(device.fd(), reinterpret_cast<void*>(begin), end - begin, result), 0);
    ASSERT_EQ(result.flags, kFlagShared);
    store_word(begin, before);
  }
  auto* grown = static_cast<char*>(std::realloc(first, 4 * kSize));
  ASSERT_NE(grown, nullptr);
  EXPECT_EQ(std::count(grown, grown + kSize, 1), kSize);
  std::memset(grown, 7, 4 * kSize);
  EXPECT_EQ(std::count(second, second + kSize, 2), kSize);
  std::free(grown);
  std::free(second);
}

TEST(RegisteredMemory, AMappingThatShrinksInItsPlaceStaysShared) {
  constexpr std::size_t kPages = 64;
  const Device device;
  char* memory = map_pages(kPages);
  ASSERT_EQ(share_in_use(device, memory, kPages * kPage), kFlagShared);
  ASSERT_EQ(::mremap(memory, kPages * kPage, kPages / 2 * kPage, MREMAP_MAYMOVE), memory);
  auto* word = reinterpret_cast<volatile std::uint64_t*>(memory);
  *word = 40;
  ASSERT_EQ(share_in_use(device, memory, kPage), kFlagShared);
  EXPECT_EQ(*word, 41U) << "what the daemon stores is seen";
  ::munmap(memory, kPages / 2 * kPage);
}

TEST(RegisteredMemory, AMappingOfWhichAPartIsSharedMayGrow) {
  constexpr std::size_t kPages = 64;
  const Device device;
  char* memory = map_pages(kPages);
  std::memset(memory, 4, kPages * kPage);
  ASSERT_EQ(share_in_use(device, memory + 8 * kPage, 8 * kPage), kFlagShared);
  memory[8 * kPage] = 4;
  auto* grown =
      static_cast<char*>(::mremap(memory, kPages * kPage, 2 * kPages * kPage, MREMAP_MAYMOVE));
  ASSERT_NE(grown, MAP_FAILED);
  EXPECT_EQ(std::count(grown, grown + kPages * kPage, 4), kPages * kPage);
  ::munmap(grown, 2 * kPages * kPage);
}

TEST(RegisteredMemory, TheDataOfTheCallingThreadItselfStaysPrivate) {
  const Device device;
  std::atomic<bool> stop = false;
  std::thread other([&stop] {
    while (!stop) std::this_thread::yield();
  });
  const auto own = reinterpret_cast<std::uintptr_t>(&errno) & ~(kPage - 1);
  EXPECT_EQ(share_in_use(device, reinterpret_cast<void*>(own), kPage), kFlagUnshared);
  stop = true;
  other.join();
}

TEST(RegisteredMemory, WhatLiesBesideTheDataOfTheCallingThreadIsShared) {
  constexpr std::size_t kStackPages = 64;
  const Device device;
  char* memory = map_pages(kStackPages + 2);
  struct Region {
    const Device& device;
    char* memory;
    std::uint64_t flags;
  } region{device, memory + kStackPages * kPage, 0};
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ASSERT_EQ(::pthread_attr_setstack(&attributes, memory, kStackPages * kPage), 0);
  pthread_t thread{};
  const auto run = [](void* given) -> void* {
    auto& own = *static_cast<Region*>(given);
    own.flags = share_in_use(own.device, own.memory, 2 * kPage);
    return nullptr;
  };
  ASSERT_EQ(::pthread_create(&thread, &attributes, run, &region), 0);
  ::pthread_join(thread, nullptr);
  ::pthread_attr_destroy(&attributes);
  EXPECT_EQ(region.flags, kFlagShared);
  ::munmap(memory, (kStackPages + 2) * kPage);
}

/// The file behind the shared pages.
int shared_file() {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string name = std::filesystem::read_symlink(entry.path(), error);
    if (name.find("softhca-shared") != std::string::npos) {
      return std::stoi(entry.path().filename().string());
    }
  }
  return -1;
}

std::uint64_t shared_inode() {
  struct stat status {};
  return ::fstat(shared_file(), &status) == 0 ? status.st_ino : 0;
}

char byte_at(std::uint64_t offset) {
  char byte = 0;
  const ssize_t got = ::pread(shared_file(), &byte, 1, static_cast<off_t>(offset));
  return got == 1 ? byte : -1;
}

TEST(RegisteredMemory, WhatTakesThePlaceOfUnmappedPagesDoesNotChangeThem) {
  constexpr std::size_t kPages = 3;
  const Device device;
  char* memory = map_pages(kPages);
  std::vector<std::uint64_t> offsets;
  for (char round = 1; round <= 5; ++round) {
    std::memset(memory, round, kPages * kPage);
    ShareResult result;
    ASSERT_EQ(share(device.fd(), memory, kPages * kPage, result, nullptr, kShareInUse), 0);
    ASSERT_EQ(result.flags, kFlagShared);
    offsets.push_back(result.offset);
    ASSERT_NE(::mmap(memory, kPages * kPage, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
              MAP_FAILED);
  }
  // The fake daemon has added one to the first word.
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    EXPECT_EQ(byte_at(offsets[i] + kPage), static_cast<char>(i + 1));
  }
  ::munmap(memory, kPages * kPage);
}

TEST(RegisteredMemory, PagesOfTheSharedFileThatNobodyUsesAreGivenBackOnRequest) {
  const Device device;
  char* memory = map_pages(2);
  std::memset(memory, 7, 2 * kPage);
  ShareResult result;
  ASSERT_EQ(share(device.fd(), memory, 2 * kPage, result, nullptr, kShareInUse), 0);
  ::munmap(memory, 2 * kPage);
  const auto say_unused = [&](std::uint64_t inode) {
    FakeCall call(kUnused);
    call.value(result.offset + kPage).value(kPage).value(inode);
    return call.run(device.fd());
  };
  EXPECT_EQ(say_unused(shared_inode() + 1), 0);
  EXPECT_EQ(byte_at(result.offset + kPage), 7) << "another file is meant";
  EXPECT_EQ(say_unused(shared_inode()), 0);
  EXPECT_EQ(byte_at(result.offset + kPage), 0);
  EXPECT_EQ(byte_at(result.offset + kPage - 1), 7);
}

/// Registers a new region of 64 KiB that holds `byte`; its offset in the file.
std::uint64_t share_new_region(const Device& device, char* memory, int byte) {
  constexpr std::size_t kSize = 16 * kPage;
  EXPECT_NE(
      ::mmap(memory, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
      MAP_FAILED);
  std::memset(memory, byte, kSize);
  ShareResult result;
  EXPECT_EQ(share(device.fd(), memory, kSize, result, nullptr, kShareInUse), 0);
  EXPECT_EQ(result.flags, kFlagShared);
  EXPECT_EQ(std::count(memory + 1, memory + kSize, byte), kSize - 1);
  return result.offset;
}

std::uint64_t blocks_of_shared_file() {
  struct stat status {};
  ::fstat(shared_file(), &status);
  return static_cast<std::uint64_t>(status.st_blocks) * 512;
}

TEST(RegisteredMemory, PagesForTheNextRegionAreAllocatedWhenOthersWereGivenBack) {
  constexpr std::size_t kSize = 16 * kPage;
  const Device device;
  char* memory = map_pages(16);
  std::set<std::uint64_t> offsets;
  std::uint64_t last = share_new_region(device, memory, 1);
  offsets.insert(last);
  for (int round = 2; round < 10; ++round) {
    const std::uint64_t before = blocks_of_shared_file();
    FakeCall call(kUnused);
    call.value(last).value(kSize).value(shared_inode());
    ASSERT_EQ(call.run(device.fd()), 0);
    EXPECT_EQ(blocks_of_shared_file(), before - kSize);
    ASSERT_TRUE(echoes(device.fd()));
    EXPECT_EQ(blocks_of_shared_file(), before);
    ASSERT_TRUE(echoes(device.fd()));
    EXPECT_EQ(blocks_of_shared_file(), before) << "once";
    last = share_new_region(device, memory, round);
    EXPECT_EQ(blocks_of_shared_file(), before) << "they were used";
    EXPECT_TRUE(offsets.insert(last).second) << "no offset comes twice";
  }
  ::munmap(memory, kSize);
}

/// In a process that has no other regions. 0, or what went wrong.
int give_back_queue_and_small_region() {
  const Device device;
  char* memory = map_pages(32);
  std::memset(memory, 1, 32 * kPage);
  ShareResult queue;
  ShareResult small;
  if (share(device.fd(), memory, 16 * kPage, queue) != 0) return 1;
  if (share(device.fd(), memory + 16 * kPage, 8 * kPage, small, nullptr, kShareInUse) != 0)
    return 2;
  for (const auto& [offset, pages] : {std::pair(queue.offset, 16), std::pair(small.offset, 8)}) {
    FakeCall call(kUnused);
    call.value(offset).value(pages * kPage).value(shared_inode());
    if (call.run(device.fd()) != 0) return 3;
  }
  return echoes(device.fd()) && blocks_of_shared_file() == 0 ? 0 : 4;
}

TEST(RegisteredMemory, NothingIsAllocatedForQueuesAndSmallRegions) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(give_back_queue_and_small_region());
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(RegisteredMemory, AChildDoesNotUseThePagesThatItsParentHasReady) {
  constexpr std::size_t kSize = 16 * kPage;
  const Device device;
  char* memory = map_pages(16);
  FakeCall call(kUnused);
  call.value(share_new_region(device, memory, 1)).value(kSize).value(shared_inode());
  ASSERT_EQ(call.run(device.fd()), 0);
  ASSERT_TRUE(echoes(device.fd()));
  const std::uint64_t before = blocks_of_shared_file();
  const pid_t child = ::fork();
  if (child == 0) {
    const Device own;
    share_new_region(own, memory, 2);
    ::_exit(blocks_of_shared_file() == kSize ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(blocks_of_shared_file(), before);
  ::munmap(memory, kSize);
}

TEST(RegisteredMemory, TheDeviceKeepsPagesThatTheProgramDiscards) {
  const Device device;
  char* memory = map_pages(2);
  std::memset(memory, 7, 2 * kPage);
  ShareResult before;
  ASSERT_EQ(share(device.fd(), memory, 2 * kPage, before), 0);
  ASSERT_EQ(::madvise(memory + kPage, kPage, MADV_DONTNEED), 0);
  EXPECT_EQ(memory[kPage], 0);
  memory[kPage] = 9;
  EXPECT_EQ(byte_at(before.offset + kPage), 7);
  EXPECT_EQ(byte_at(before.offset + kPage - 1), 7);
  ShareResult after;
  ASSERT_EQ(share(device.fd(), memory + kPage, kPage, after), 0);
  EXPECT_NE(after.offset, before.offset + kPage);
  EXPECT_EQ(byte_at(before.offset + kPage), 7);
  ::munmap(memory, 2 * kPage);
}

TEST(RegisteredMemory, APageOfAHeapIsSharedOnlyAsAWhole) {
  constexpr std::size_t kThreadHeap = 64 << 20;
  constexpr std::uint64_t kPart = kShareInUse | kSharePartOfFirst | kSharePartOfLast;
  const Device device;
  const auto flags_of = [&device](char* memory, std::uint64_t flags) {
    ShareResult result;
    return share(device.fd(), memory, kPage, result, nullptr, flags) == 0 ? result.flags : 0;
  };
  char* ordinary = map_pages(3);
  EXPECT_EQ(flags_of(ordinary + kPage, kPart), kFlagShared);
  ::munmap(ordinary, 3 * kPage);

  auto* heap = static_cast<char*>(::sbrk(4 * kPage));
  heap += (kPage - reinterpret_cast<std::uintptr_t>(heap) % kPage) % kPage;
  std::memset(heap, 1, 3 * kPage);
  EXPECT_EQ(flags_of(heap, kShareInUse), kFlagShared);
  EXPECT_EQ(flags_of(heap, kPart), kFlagShared) << "what is shared already stays so";
  char* part = heap + kPage;
  EXPECT_EQ(flags_of(part, kPart), kFlagUnshared);
  EXPECT_EQ(flags_of(part, kShareInUse), kFlagUnshared) << "the device may be writing there";
  EXPECT_EQ(flags_of(part, kShareInUse | kShareAll), kFlagShared);

  // As the C library makes the heaps of threads.
  void* room = ::mmap(nullptr, 2 * kThreadHeap, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  const auto aligned = (reinterpret_cast<std::uintptr_t>(room) + kThreadHeap) & ~(kThreadHeap - 1);
  auto* thread_heap = reinterpret_cast<char*>(aligned);
  ASSERT_EQ(::mprotect(thread_heap, 3 * kPage, PROT_READ | PROT_WRITE), 0);
  EXPECT_EQ(flags_of(thread_heap + kPage, kPart), kFlagShared) << "nothing says that it is one";
  const std::uint64_t description[] = {aligned + 48, 0, 3 * kPage, 3 * kPage};
  std::memcpy(thread_heap, description, sizeof(description));
  EXPECT_EQ(flags_of(thread_heap + 2 * kPage, kPart), kFlagUnshared);
  ::munmap(room, 2 * kThreadHeap);
}

/// Asks for a part of each page of [memory, memory + pages); how many stay private.
std::size_t register_parts(const Device& device, char* memory, std::size_t pages) {
  std::size_t unshared = 0;
  for (std::size_t page = 0; page < pages; ++page) {
    ShareResult result;
    share(device.fd(), memory + page * kPage, kPage, result, nullptr,
          kShareInUse | kSharePartOfFirst | kSharePartOfLast);
    unshared += result.flags == kFlagUnshared ? 1 : 0;
  }
  return unshared;
}

TEST(RegisteredMemory, NoOtherPageIsLeftOutForThoseThatStayPrivate) {
  constexpr std::size_t kHeapPages = 2048;
  constexpr std::size_t kRegions = 128;
  constexpr std::size_t kPages = 16;
  const Device device;
  auto* heap = static_cast<char*>(::sbrk((kHeapPages + 1) * kPage));
  heap += (kPage - reinterpret_cast<std::uintptr_t>(heap) % kPage) % kPage;
  ASSERT_EQ(register_parts(device, heap, kHeapPages), kHeapPages);
  // As far from each other as the heap is large: distances to its pages are all different.
  constexpr std::size_t kStride = kHeapPages * kPage;
  void* room = ::mmap(nullptr, kRegions * kStride, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(room, MAP_FAILED);
  for (std::size_t i = 0; i < kRegions; ++i) {
    char* region = static_cast<char*>(room) + i * kStride;
    EXPECT_EQ(share_in_use(device, region, kPages * kPage), kFlagShared) << i;
  }
  ::munmap(room, kRegions * kStride);
}

TEST(RegisteredMemory, WhatTakesThePlaceOfAHeapIsShared) {
  constexpr std::size_t kThreadHeap = 64 << 20;
  const Device device;
  // As the C library makes the heaps of threads.
  void* room = ::mmap(nullptr, 2 * kThreadHeap, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  const auto aligned = (reinterpret_cast<std::uintptr_t>(room) + kThreadHeap) & ~(kThreadHeap - 1);
  auto* heap = reinterpret_cast<char*>(aligned);
  ASSERT_EQ(::mprotect(heap, 3 * kPage, PROT_READ | PROT_WRITE), 0);
  const std::uint64_t description[] = {aligned + 48, 0, 3 * kPage, 3 * kPage};
  std::memcpy(heap, description, sizeof(description));
  ASSERT_EQ(register_parts(device, heap + 2 * kPage, 1), 1U);
  ASSERT_NE(::mmap(room, 2 * kThreadHeap, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0),
            MAP_FAILED);
  EXPECT_EQ(share_in_use(device, heap, 4 * kPage), kFlagShared);
  ::munmap(room, 2 * kThreadHeap);
}

TEST(RegisteredMemory, TheHeapOfAThreadIsKnown) {
  if (::dlsym(RTLD_DEFAULT, "__asan_init") != nullptr ||
      ::dlsym(RTLD_DEFAULT, "__tsan_init") != nullptr) {
    GTEST_SKIP() << "the heap is another than the C library's";
  }
  const Device device;
  ShareResult result;
  std::thread thread([&] {
    void* block = std::malloc(64);
    const auto page = reinterpret_cast<std::uintptr_t>(block) & ~(kPage - 1);
    share(device.fd(), reinterpret_cast<void*>(page), kPage, result, nullptr,
          kShareInUse | kSharePartOfFirst | kSharePartOfLast);
    std::free(block);
  });
  thread.join();
  EXPECT_EQ(result.flags, kFlagUnshared);
}

TEST(RegisteredMemory, NeighboursBecomeOneMappingInAnyOrder) {
  constexpr std::size_t kPages = 64;
  const Device device;
  char* memory = map_pages(kPages);
  ShareResult result;
  std::set<std::uint64_t> places;
  for (std::size_t i = 0; i < kPages; ++i) {
    const std::size_t page = (i * 37 + 5) % kPages;
    ASSERT_EQ(share(device.fd(), memory + page * kPage, kPage, result), 0);
    places.insert(result.offset - page * kPage);
  }
  // More than one where a window of the file ends, or has pages of tests before.
  EXPECT_LE(places.size(), 3U);
  ::munmap(memory, kPages * kPage);
}

}  // namespace
}  // namespace softhca::shim::test
