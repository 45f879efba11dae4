// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause

/// Calls that do to shared pages what they should not, because the pages belong to a file:
/// madvise() would keep content that is to be gone, mremap() and realloc() would show other pages
/// of the file where memory grows.

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include <malloc.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernel-shim/preload/command_fd.h"
#include "kernel-shim/preload/interpose.h"
#include "kernel-shim/preload/next.h"
#include "kernel-shim/preload/parked_regions.h"
#include "kernel-shim/preload/shared_memory.h"

namespace softhca::shim::preload {
namespace {

/// Smaller blocks are never a mapping of their own, which mremap() could move.
constexpr std::size_t kSmallestMoved = 4096;

/// Asks the daemon to give discarded pages back, when it is worth a message.
void note_discarded(std::uint64_t length) {
  constexpr std::uint64_t kWorthIt = 1U << 20;
  static std::atomic<std::uint64_t> waiting;
  if (length == 0 || waiting.fetch_add(length) + length < kWorthIt) return;
  waiting.store(0);
  ask_for_sweep();
}

/// What mremap() does for memory that may move, by copying: after unshare() the memory is several
/// mappings, which the kernel does not move at once.
void* move_by_copy(void* address, std::size_t old_size, std::size_t new_size) {
  void* moved =
      ::mmap(nullptr, new_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (moved == MAP_FAILED) return moved;
  std::memcpy(moved, address, old_size < new_size ? old_size : new_size);
  ::munmap(address, old_size);
  return moved;
}

void note_moved(std::uint64_t from, std::size_t old_size, std::uint64_t to, std::size_t new_size,
                bool unshared) {
  if (unshared || to != from) {
    end_parked_in(from, from + old_size);
    end_parked_in(to, to + new_size);
  } else if (new_size < old_size) {
    end_parked_in(from + new_size, from + old_size);
  }
}

}  // namespace

SOFTHCA_INTERPOSE(int, madvise, void* address, std::size_t length, int advice) {
  const int result = static_cast<int>(::syscall(SYS_madvise, address, length, advice));
  if (result == 0 && advice == MADV_DONTNEED) {
    const auto begin = reinterpret_cast<std::uint64_t>(address);
    note_discarded(discard_shared(begin, begin + length));
    end_parked_in(begin, begin + length);
  }
  return result;
}

SOFTHCA_INTERPOSE(int, munmap, void* address, std::size_t length) {
  const int result = static_cast<int>(::syscall(SYS_munmap, address, length));
  const auto begin = reinterpret_cast<std::uint64_t>(address);
  if (result == 0) end_parked_in(begin, begin + length);
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
  // What stays in its place stays shared.
  const bool moves = new_size > old_size || wanted != nullptr;
  const bool unshared = moves && is_shared(begin, begin + old_size);
  if (unshared) unshare(begin, begin + old_size);
  const int before = errno;
  auto* const result =
      reinterpret_cast<void*>(::syscall(SYS_mremap, address, old_size, new_size, flags, wanted));
  if (!unshared || result != MAP_FAILED || errno != EFAULT || flags != MREMAP_MAYMOVE) {
    if (result != MAP_FAILED)
      note_moved(begin, old_size, reinterpret_cast<std::uint64_t>(result), new_size, unshared);
    return result;
  }
  errno = before;
  return move_by_copy(address, old_size, new_size);
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
