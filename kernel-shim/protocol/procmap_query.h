// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>

#include <sys/ioctl.h>

/// PROCMAP_QUERY (Linux 6.11, include/uapi/linux/fs.h): one mapping of a /proc/PID/maps descriptor,
/// without the text of all others. Headers of older kernels do not have it.
namespace softhca::shim {

struct ProcmapQuery {
  std::uint64_t size = sizeof(ProcmapQuery);
  std::uint64_t query_flags = 0;
  std::uint64_t query_address = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t flags = 0;
  std::uint64_t page_size = 0;
  std::uint64_t offset = 0;
  std::uint64_t inode = 0;
  std::uint32_t device_major = 0;
  std::uint32_t device_minor = 0;
  std::uint32_t name_size = 0;  ///< In: room at `name`, 0: not wanted.
  std::uint32_t build_id_size = 0;
  std::uint64_t name = 0;
  std::uint64_t build_id = 0;
};
static_assert(sizeof(ProcmapQuery) == 104);

/// query_flags: the mapping at the address, or else the next one. ENOENT: there is none.
inline constexpr std::uint64_t kProcmapCoveringOrNext = 0x10;
// flags
inline constexpr std::uint64_t kProcmapReadable = 1;
inline constexpr std::uint64_t kProcmapWritable = 2;
inline constexpr std::uint64_t kProcmapExecutable = 4;
inline constexpr std::uint64_t kProcmapShared = 8;

/// Fails with ENOTTY on older kernels.
inline constexpr unsigned long kProcmapQuery = _IOWR('f', 17, ProcmapQuery);

}  // namespace softhca::shim
