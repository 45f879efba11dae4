// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/host/memory/shared_pages.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>

namespace softhca::shim {
namespace {

constexpr std::uint64_t kPageMask = 4095;

}  // namespace

int check_shared(int fd, std::uint64_t address, std::uint64_t length) {
  struct stat status {};
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) return EINVAL;
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return EINVAL;
  const auto size = static_cast<std::uint64_t>(status.st_size);
  return length <= size && address <= size - length ? 0 : EFAULT;
}

ShareRange pages_inside(std::uint64_t address, std::uint64_t length) {
  ShareRange range;
  range.address = (address + kPageMask) & ~kPageMask;
  const std::uint64_t end = (address + length) & ~kPageMask;
  range.length = end > range.address ? end - range.address : 0;
  return range;
}

ShareRange pages_of(std::uint64_t address, std::uint64_t length) {
  ShareRange range;
  range.address = address & ~kPageMask;
  range.length = ((address + length + kPageMask) & ~kPageMask) - range.address;
  return range;
}

}  // namespace softhca::shim
