// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/preload/shared_memory.h"

#include <atomic>
#include <cerrno>

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernel-shim/preload/exchange.h"
#include "kernel-shim/preload/guarded_fds.h"
#include "kernel-shim/preload/lock.h"
#include "kernel-shim/preload/memory_map.h"
#include "kernel-shim/preload/store_guard.h"
#include "kernel-shim/preload/thread_stacks.h"

namespace softhca::shim::preload {
namespace {

constexpr std::uint64_t kSharedPage = 4096;
/// User addresses end below it on x86-64 and aarch64 with 4 levels of tables.
constexpr std::uint64_t kAddressSpace = 1ULL << 47;
/// Swapped at once: bounds the memory needed twice, and how long other threads wait.
constexpr std::uint64_t kSwapChunk = 8ULL << 20;
/// Pages are looked for that nobody maps any more after this many bytes were swapped, and not
/// before as many as were in use the last time.
constexpr std::uint64_t kSmallestCollection = 64ULL << 20;

struct Memory {
  Lock lock;
  GuardedFd file;
  std::uint64_t inode;
  bool present;
  std::uint64_t swapped;  // Bytes since unmapped ones were looked for.
  std::uint64_t in_use;   // Bytes that were mapped then.
  int fork_pipe[2];       // Between the handlers before and after fork().
  bool forks_with_pipe;
};
Memory memory;

void raw_close(int fd) {
  ::syscall(SYS_close, fd);
}

/// Writing beyond the limit would kill the process (SIGXFSZ).
bool may_write_file() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur >= kAddressSpace;
}

/// Makes the memfd. 0 or errno.
int create_file() {
  const int fd = static_cast<int>(
      ::syscall(SYS_memfd_create, "softhca-shared", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (fd < 0) return errno;
  struct stat status;
  if (::syscall(SYS_ftruncate, fd, kAddressSpace) != 0 ||
      ::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) != 0 || ::syscall(SYS_fstat, fd, &status) != 0) {
    const int error = errno;
    raw_close(fd);
    return error;
  }
  memory.inode = status.st_ino;
  guard(memory.file, fd);
  memory.present = true;
  return 0;
}

bool is_of_our_file(const Mapping& mapping) {
  return memory.present && mapping.is_shared && mapping.inode == memory.inode;
}

/// Shared where it is; what the application has moved by mremap() is not.
bool is_ours(const Mapping& mapping) {
  return is_of_our_file(mapping) && mapping.offset == mapping.begin;
}

/// Which 2 MiB pieces of the address space ever had shared pages, hashed: spares madvise() a look
/// at the mappings.
class PieceFilter {
 public:
  void add(std::uint64_t begin, std::uint64_t end) {
    for (std::uint64_t piece = begin / kPiece; piece <= (end - 1) / kPiece; ++piece) {
      words_[piece / 64 % kWords].fetch_or(1ULL << piece % 64, std::memory_order_relaxed);
    }
  }
  bool may_hold(std::uint64_t begin, std::uint64_t end) const {
    const std::uint64_t first = begin / kPiece;
    const std::uint64_t last = (end - 1) / kPiece;
    if (last - first >= kWords * 64) return true;
    for (std::uint64_t piece = first; piece <= last; ++piece) {
      const std::uint64_t word = words_[piece / 64 % kWords].load(std::memory_order_relaxed);
      if ((word & 1ULL << piece % 64) != 0) return true;
    }
    return false;
  }

 private:
  static constexpr std::uint64_t kPiece = 2U << 20;
  static constexpr std::uint64_t kWords = 64;
  std::atomic<std::uint64_t> words_[kWords];
};
PieceFilter shared_pieces;

/// Replaces [begin, end), one mapping's part, by pages of the memfd. 0 or errno.
int swap_chunk(std::uint64_t begin, std::uint64_t end, int protection) {
  const int file = memory.file.load(std::memory_order_relaxed);
  for (std::uint64_t at = begin; at < end;) {
    const ssize_t written = ::syscall(SYS_pwrite64, file, at, end - at, at);
    if (written <= 0) return written < 0 ? errno : EIO;
    at += static_cast<std::uint64_t>(written);
  }
  shared_pieces.add(begin, end);
  memory.swapped += end - begin;
  const long mapped = ::syscall(SYS_mmap, begin, end - begin, protection,
                                MAP_SHARED | MAP_FIXED | MAP_POPULATE, file, begin);
  return mapped == -1 ? errno : 0;
}

/// `guard`: keeps other threads from the memory; null if nobody uses it. 0 or errno.
int swap_pages(const Mapping& part, StoreGuard* guard) {
  for (std::uint64_t at = part.begin; at < part.end;) {
    const std::uint64_t end = part.end - at > kSwapChunk ? at + kSwapChunk : part.end;
    if (guard != nullptr) {
      if (const int error = guard->protect(at, end)) return error;
    }
    const int error = swap_chunk(at, end, part.protection);
    if (guard != nullptr) guard->release(at, end);
    if (error != 0) return error;
    at = end;
  }
  return 0;
}

bool is_sensible(const ShareRange& range) {
  return range.length != 0 && range.address % kSharedPage == 0 && range.length % kSharedPage == 0 &&
         range.address < kAddressSpace && range.length <= kAddressSpace - range.address;
}

bool is_zero_at_inside(const ShareRange& range) {
  return range.zero_at % 8 == 0 && range.zero_at >= range.address &&
         range.zero_at - range.address <= range.length - 8;
}

bool can_be_swapped(const Mapping& part) {
  return !part.is_shared && (part.protection & PROT_EXEC) == 0 && !part.is_stack_or_kernels &&
         !is_stack(part.begin, part.end) && !is_own_thread_data(part.begin, part.end);
}

/// The first part of [begin, end) that is not shared yet, cut at the end of its mapping.
/// `found` says whether there is one. 0 or errno.
int next_private_part(std::uint64_t begin, std::uint64_t end, Mapping& part, bool& found) {
  MemoryMap map;
  if (!map.is_open()) return errno;
  Mapping mapping;
  std::uint64_t at = begin;
  found = false;
  while (at < end && map.next(mapping)) {
    if (mapping.end <= at) continue;
    if (mapping.begin > at) return EFAULT;
    if (!is_ours(mapping)) {
      if ((mapping.protection & PROT_READ) == 0) return EFAULT;
      part = mapping;
      part.begin = at;
      if (part.end > end) part.end = end;
      found = true;
      return can_be_swapped(part) ? 0 : EINVAL;
    }
    at = mapping.end;
  }
  return at >= end ? 0 : EFAULT;
}

int share_range(const ShareRange& range, StoreGuard* guard) {
  const std::uint64_t end = range.address + range.length;
  std::uint64_t at = range.address;
  while (true) {
    Mapping part;
    bool found = false;
    int error = next_private_part(at, end, part, found);
    if (error != 0) return error;
    if (!found) break;
    error = swap_pages(part, guard);
    if (error != 0) return error;
    at = part.end;
  }
  if (range.zero_at != 0) {
    reinterpret_cast<std::atomic<std::uint64_t>*>(range.zero_at)->store(0);
  }
  return 0;
}

/// Counts the bytes of the file that are mapped where they belong. False if some are mapped
/// elsewhere, by system calls that went past mremap() here.
bool count_mapped(std::uint64_t& bytes) {
  MemoryMap map;
  Mapping mapping;
  bytes = 0;
  if (!map.is_open()) return false;
  while (map.next(mapping)) {
    if (!is_of_our_file(mapping)) continue;
    if (!is_ours(mapping)) return false;
    bytes += mapping.end - mapping.begin;
  }
  return true;
}

/// Gives back the file's pages that are not mapped. New mappings of it appear only under the lock.
void collect_unmapped() {
  if (memory.swapped < kSmallestCollection || memory.swapped < memory.in_use) return;
  memory.swapped = 0;
  if (!count_mapped(memory.in_use)) return;
  MemoryMap map;
  if (!map.is_open()) return;
  const int file = memory.file.load(std::memory_order_relaxed);
  const auto give_back = [file](std::uint64_t begin, std::uint64_t end) {
    constexpr int kPunchHole = 3;  // FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
    if (begin < end) ::syscall(SYS_fallocate, file, kPunchHole, begin, end - begin);
  };
  std::uint64_t unmapped_from = 0;
  Mapping mapping;
  while (map.next(mapping)) {
    if (!is_ours(mapping)) continue;
    give_back(unmapped_from, mapping.begin);
    unmapped_from = mapping.end;
  }
  give_back(unmapped_from, kAddressSpace);
}

/// Replaces one shared mapping by a private copy.
void make_private(const Mapping& mapping, int file) {
  const std::size_t length = mapping.end - mapping.begin;
  const long copy = ::syscall(SYS_mmap, nullptr, length, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  bool complete = copy != -1;
  for (std::size_t done = 0; complete && done < length;) {
    const ssize_t got = ::syscall(SYS_pread64, file, static_cast<unsigned long>(copy) + done,
                                  length - done, mapping.offset + done);
    complete = got > 0;
    if (complete) done += static_cast<std::size_t>(got);
  }
  if (!complete) {
    // Out of memory: copy page by page when the child writes.
    ::syscall(SYS_mmap, mapping.begin, length, mapping.protection, MAP_PRIVATE | MAP_FIXED, file,
              mapping.offset);
    return;
  }
  if (mapping.protection != (PROT_READ | PROT_WRITE)) {
    ::syscall(SYS_mprotect, copy, length, mapping.protection);
  }
  ::syscall(SYS_mremap, copy, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, mapping.begin);
}

void make_all_private() {
  constexpr unsigned kBatch = 64;
  const int file = memory.file.load(std::memory_order_relaxed);
  unsigned count = 0;
  do {
    Mapping found[kBatch];
    count = 0;
    {
      MemoryMap map;
      if (!map.is_open()) return;
      Mapping mapping;
      while (count < kBatch && map.next(mapping)) {
        if (is_of_our_file(mapping)) found[count++] = mapping;
      }
    }
    for (unsigned i = 0; i < count; ++i) make_private(found[i], file);
  } while (count == kBatch);
}

void before_fork() {
  memory.lock.lock();
  memory.forks_with_pipe = memory.present && ::syscall(SYS_pipe2, memory.fork_pipe, O_CLOEXEC) == 0;
}

/// Waits until the child has its copies (or is dead): until then what the parent stores is seen
/// by the child.
void after_fork_in_parent() {
  const ErrnoGuard guard;
  if (memory.forks_with_pipe) {
    raw_close(memory.fork_pipe[1]);
    // A child that is stopped must not hold its parent for ever; copying takes 1 ms for 128 KiB at
    // the worst.
    constexpr int kWaitMs = 5000;
    constexpr std::uint64_t kBytesPerMs = 128 * 1024;
    constexpr std::uint64_t kMostMs = 3'600'000;
    const std::uint64_t copying = (memory.in_use + memory.swapped) / kBytesPerMs;
    const int wait = kWaitMs + static_cast<int>(copying < kMostMs ? copying : kMostMs);
    pollfd end_of_file{memory.fork_pipe[0], POLLIN, 0};
    while (::poll(&end_of_file, 1, wait) < 0 && errno == EINTR) {
    }
    raw_close(memory.fork_pipe[0]);
  }
  memory.lock.unlock();
}

void after_fork_in_child() {
  const ErrnoGuard guard;
  adopt_guarded_fds();
  if (memory.present) {
    make_all_private();
    raw_close(unguard(memory.file));
    memory.present = false;
  }
  if (memory.forks_with_pipe) {
    raw_close(memory.fork_pipe[1]);
    raw_close(memory.fork_pipe[0]);
  }
  memory.lock.unlock();
  forget_reply_descriptors();
}

std::atomic<bool> handles_fork;

}  // namespace

int share_ranges(const ShareRange* ranges, std::size_t count) {
  const ErrnoGuard errno_guard;
  for (std::size_t i = 0; i < count; ++i) {
    if (!is_sensible(ranges[i])) return EIO;
    if (ranges[i].zero_at != 0 && !is_zero_at_inside(ranges[i])) return EIO;
  }
  if (!may_write_file()) return EFBIG;
  prepare_for_fork();
  const LockGuard guard(memory.lock);
  if (!memory.present) {
    const int error = create_file();
    if (error != 0) return error;
  }
  collect_unmapped();
  for (std::size_t i = 0; i < count; ++i) {
    StoreGuard store_guard;
    const bool in_use = (ranges[i].flags & kShareInUse) != 0;
    const int error = share_range(ranges[i], in_use ? &store_guard : nullptr);
    if (error != 0) return error;
  }
  return 0;
}

bool is_shared(std::uint64_t begin, std::uint64_t end) {
  if (begin >= end || !shared_pieces.may_hold(begin, end)) return false;
  const ErrnoGuard errno_guard;
  const LockGuard guard(memory.lock);
  MemoryMap map;
  Mapping mapping;
  while (map.is_open() && map.next(mapping) && mapping.begin < end) {
    if (mapping.end > begin && is_of_our_file(mapping)) return true;
  }
  return false;
}

void unshare(std::uint64_t begin, std::uint64_t end) {
  end = (end + kSharedPage - 1) & ~(kSharedPage - 1);
  if (begin >= end || !shared_pieces.may_hold(begin, end)) return;
  const ErrnoGuard errno_guard;
  const LockGuard guard(memory.lock);
  const int file = memory.file.load(std::memory_order_relaxed);
  while (true) {
    Mapping found;
    bool any = false;
    {
      MemoryMap map;
      Mapping mapping;
      while (!any && map.is_open() && map.next(mapping) && mapping.begin < end) {
        if (mapping.end <= begin || !is_of_our_file(mapping)) continue;
        any = true;
        found = mapping;
      }
    }
    if (!any) return;
    if (found.begin < begin) {
      found.offset += begin - found.begin;
      found.begin = begin;
    }
    if (found.end > end) found.end = end;
    make_private(found, file);
  }
}

void discard_shared(std::uint64_t begin, std::uint64_t end) {
  if (begin >= end || !shared_pieces.may_hold(begin, end)) return;
  const ErrnoGuard errno_guard;
  const LockGuard guard(memory.lock);
  MemoryMap map;
  Mapping mapping;
  while (map.is_open() && map.next(mapping) && mapping.begin < end) {
    if (mapping.end <= begin || !is_ours(mapping)) continue;
    const std::uint64_t from = mapping.begin > begin ? mapping.begin : begin;
    const std::uint64_t to = mapping.end < end ? mapping.end : end;
    ::syscall(SYS_madvise, from, to - from, MADV_REMOVE);
  }
}

void prepare_for_fork() {
  if (handles_fork.exchange(true)) return;
  ::pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

int shared_memory_fd() {
  return memory.file.load(std::memory_order_relaxed);
}

}  // namespace softhca::shim::preload
