// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/preload/memory_probe.h"

#include <cerrno>
#include <cstring>
#include <ctime>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernel-shim/preload/errno_guard.h"

namespace softhca::shim::preload {
namespace {

constexpr std::uintptr_t kProbedPage = 4096;

bool word_is_readable(std::uintptr_t word) {
  // Reads the word and compares it; a mismatch is EAGAIN, a match waits for no time at all.
  const timespec no_time{0, 0};
  const long result =
      ::syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, 0x5afe5afeU, &no_time, nullptr, 0);
  return result == 0 || errno != EFAULT;
}

bool word_is_writable(std::uintptr_t word) {
  // Adds 0 to the word; wakes nobody on `own`, and nobody on the word unless it is below -2048.
  std::uint32_t own = 0;
  constexpr std::uint32_t kAddNothing =
      FUTEX_OP(FUTEX_OP_ADD, 0, FUTEX_OP_CMP_LT, static_cast<std::uint32_t>(-2048));
  const long result = ::syscall(SYS_futex, &own, FUTEX_WAKE_OP_PRIVATE, 1, 0, word, kAddNothing);
  return result >= 0 || errno != EFAULT;
}

template <typename Probe>
bool every_page(const void* address, std::size_t length, Probe probe) {
  if (length == 0) return true;
  const ErrnoGuard guard;
  const auto first = reinterpret_cast<std::uintptr_t>(address);
  const std::uintptr_t last = first + length - 1;
  if (last < first) return false;
  for (std::uintptr_t at = first & ~std::uintptr_t{3};; at = (at | (kProbedPage - 1)) + 1) {
    if (!probe(at)) return false;
    if ((at | (kProbedPage - 1)) >= last) return true;
  }
}

}  // namespace

bool is_readable(const void* address, std::size_t length) {
  return every_page(address, length, word_is_readable);
}

bool is_writable(void* address, std::size_t length) {
  return every_page(address, length, word_is_writable);
}

bool copy_from(void* destination, const void* source, std::size_t length) {
  if (!is_readable(source, length)) return false;
  std::memcpy(destination, source, length);
  return true;
}

bool copy_to(void* destination, const void* source, std::size_t length) {
  if (!is_writable(destination, length)) return false;
  std::memcpy(destination, source, length);
  return true;
}

}  // namespace softhca::shim::preload
