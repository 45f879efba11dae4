// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause

/// Calls that do to shared pages what they should not, because the pages belong to a file whose
/// offsets are addresses: madvise() would keep content that is to be gone, mremap() and realloc()
/// would show pages of other addresses where memory grows.

#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include <malloc.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernel-shim/preload/interpose.h"
#include "kernel-shim/preload/next.h"
#include "kernel-shim/preload/shared_memory.h"

namespace softhca::shim::preload {
namespace {

/// Smaller blocks are never moved by mremap() in any allocator that we know.
constexpr std::size_t kSmallestMoved = 64 * 1024;

}  // namespace

SOFTHCA_INTERPOSE(int, madvise, void* address, std::size_t length, int advice) {
  const int result = static_cast<int>(::syscall(SYS_madvise, address, length, advice));
  if (result == 0 && advice == MADV_DONTNEED) {
    const auto begin = reinterpret_cast<std::uint64_t>(address);
    discard_shared(begin, begin + length);
  }
  return result;
}

SOFTHCA_INTERPOSE(void*, mremap, void* address, std::size_t old_size, std::size_t new_size,
                  int flags, ...) {
  void* wanted = nullptr;
  if ((flags & (MREMAP_FIXED | MREMAP_DONTUNMAP)) != 0) {
    va_list arguments;
    va_start(arguments, flags);
    wanted = va_arg(arguments, void*);
    va_end(arguments);
  }
  const auto begin = reinterpret_cast<std::uint64_t>(address);
  unshare(begin, begin + old_size);
  return reinterpret_cast<void*>(::syscall(SYS_mremap, address, old_size, new_size, flags, wanted));
}

SOFTHCA_INTERPOSE(void*, realloc, void* block, std::size_t size) {
  const std::size_t present = block != nullptr && size != 0 ? ::malloc_usable_size(block) : 0;
  const auto begin = reinterpret_cast<std::uint64_t>(block);
  if (present < kSmallestMoved || size <= present || !is_shared(begin, begin + present)) {
    return next::realloc(block, size);
  }
  void* moved = std::malloc(size);
  if (moved == nullptr) return nullptr;
  std::memcpy(moved, block, present);
  std::free(block);
  return moved;
}

}  // namespace softhca::shim::preload
