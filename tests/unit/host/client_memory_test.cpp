// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/host/memory/client_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <sstream>

namespace softhca::shim {
namespace {

constexpr char kMaps[] =
    "00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/a b-c\n"
    "00651000-00653000 r--p 00051000 08:02 173521      /usr/bin/x\n"
    "00653000-00655000 rw-p 00052000 08:02 173521      /usr/bin/x\n"
    "00655000-00657000 rw-p 00000000 00:00 0           [heap]\n"
    "7fff0000-7fff8000 ---p 00000000 00:00 0\n";

TEST(ProcessMap, ReadsWhatTheKernelWrites) {
  std::istringstream maps(kMaps);
  const std::vector<MapEntry> entries = parse_maps(maps);
  ASSERT_EQ(entries.size(), 5U);
  EXPECT_EQ(entries[1].begin, 0x651000U);
  EXPECT_EQ(entries[1].end, 0x653000U);
  EXPECT_EQ(entries[1].offset, 0x51000U);
  EXPECT_EQ(entries[1].inode, 173521U);
  EXPECT_TRUE(entries[1].readable);
  EXPECT_FALSE(entries[1].writable);
  EXPECT_TRUE(entries[3].writable);
  EXPECT_FALSE(entries[4].readable);
}

TEST(ClientMemory, ChecksALivingProcess) {
  runtime::UniqueFd mem(::open("/proc/self/mem", O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(mem);
  const ClientMemory memory(std::move(mem), ::getpid());
  void* const page =
      ::mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const auto address = reinterpret_cast<std::uint64_t>(page);
  EXPECT_EQ(memory.check(address, 8192, true), 0);
  ::mprotect(page, 4096, PROT_READ);
  EXPECT_EQ(memory.check(address, 8192, true), EFAULT);
  EXPECT_EQ(memory.check(address, 8192, false), 0);
  EXPECT_EQ(memory.check(~0ULL - 10, 100, false), EINVAL);
  ::munmap(page, 8192);
  EXPECT_EQ(memory.check(address, 8192, false), EFAULT);
}

TEST(ClientMemory, ADescriptorTellsWhoseMemoryItNames) {
  const auto mine =
      ClientMemory::identify(runtime::UniqueFd(::open("/proc/self/mem", O_RDWR | O_CLOEXEC)));
  ASSERT_TRUE(mine);
  EXPECT_EQ(mine->pid(), ::getpid());
  EXPECT_FALSE(
      ClientMemory::identify(runtime::UniqueFd(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC))));
  EXPECT_FALSE(ClientMemory::identify(runtime::UniqueFd(::memfd_create("other", MFD_CLOEXEC))));
  EXPECT_FALSE(ClientMemory::identify(runtime::UniqueFd()));
}

}  // namespace
}  // namespace softhca::shim
