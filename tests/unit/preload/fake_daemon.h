// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <string>

/// A stand-in for the host's daemon that answers what the tests of the preloaded library ask. It
/// serves each connection in a process of its own, so that one can die alone.
namespace softhca::shim::test {

inline constexpr std::uint32_t kRdevMajor = 231;
inline constexpr std::uint32_t kRdevMinor = 192;

/// The ioctl methods of the fake device, all of kFakeObject.
inline constexpr std::uint16_t kFakeObject = 0x2000;
enum FakeMethod : std::uint16_t {
  kEcho = 1,           ///< Input 0 (more than 8 bytes) comes back in output 1.
  kNewHandle = 2,      ///< Stores kHandle in attribute 0.
  kNewDescriptor = 3,  ///< Attribute 0 becomes the number of a pipe's read end that holds "hi".
  kFailBusy = 4,       ///< EBUSY.
  kShare = 5,          ///< See ShareCall.
  kDie = 6,            ///< Ends without an answer.
  kReadMemory = 7,     ///< Output 1: the 8 bytes at address attribute 0, of the calling process.
  kSlowEcho = 8,       ///< As kEcho, 10 ms later.
  kHugeOutput = 9,     ///< Fills output 0 with kHugeByte.
  kLateEcho = 11,      ///< As kEcho, 300 ms later.
  kRegions = 12,       ///< Output 0: RegionCounts (fake_regions.h).
  kUnused = 10,        ///< Says that length 1 from offset 0 of the file with inode 2 is not used.
};
/// Commands of the write form that the fake daemon carries out, beside REG_MR.
enum FakeCommand : std::uint32_t { kDeallocPd = 4, kReregMr = 11, kDeregMr = 13 };
inline constexpr std::uint64_t kHandle = 0x1234;
inline constexpr unsigned char kHugeByte = 0x5c;

/// kShare: attribute 0 is the address, 1 the length, 2 zero_at, 4 the flags; once the range is
/// shared the daemon adds 1 to the 8 bytes at the address. Output 3: {request flags, value found at
/// the address, and its place in the file}.
struct ShareResult {
  std::uint64_t flags = 0;
  std::uint64_t value = 0;
  std::uint64_t offset = 0;  ///< Where it was found in the file.
};

/// Content of the file that mmap() on a command descriptor maps: each 8 bytes hold their offset.
inline constexpr std::uint64_t kMappedFileSize = 64 * 1024;

/// A file of the host's tree to which each refresh appends a digit.
inline constexpr char kCounterPath[] =
    "/sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_packets";

/// Serves `<host_dir>/kernel.sock` in a new process until the calling process (or what it becomes
/// by exec) ends. Returns when connections are accepted.
void start_fake_daemon(const std::string& host_dir);

}  // namespace softhca::shim::test
