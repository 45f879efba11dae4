// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/preload/shared_memory.h"

#include <atomic>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <linux/falloc.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernel-shim/preload/exchange.h"
#include "kernel-shim/preload/file_offsets.h"
#include "kernel-shim/preload/guarded_fds.h"
#include "kernel-shim/preload/lock.h"
#include "kernel-shim/preload/memory_map.h"
#include "kernel-shim/preload/memory_probe.h"
#include "kernel-shim/preload/parked_regions.h"
#include "kernel-shim/preload/private_pages.h"
#include "kernel-shim/preload/ready_pages.h"
#include "kernel-shim/preload/store_guard.h"
#include "kernel-shim/preload/thread_stacks.h"

namespace softhca::shim::preload {
namespace {

constexpr std::uint64_t kSharedPage = 4096;
/// User addresses end below it on x86-64 and aarch64 with 4 levels of tables.
constexpr std::uint64_t kAddressSpace = 1ULL << 47;
/// Swapped at once: bounds the memory needed twice, and how long other threads wait.
constexpr std::uint64_t kSwapChunk = 8ULL << 20;

struct Memory {
  Lock lock;
  GuardedFd file;
  std::uint64_t device;
  std::uint64_t inode;
  bool present;
  FileOffsets offsets;
  ReadyPages ready;
  PrivatePages private_pages;
  std::uint64_t swapped;  // Bytes so far.
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
  return ::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur >= FileOffsets::kEnd;
}

/// Makes the memfd. 0 or errno.
int create_file() {
  const int fd = static_cast<int>(
      ::syscall(SYS_memfd_create, "softhca-shared", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (fd < 0) return errno;
  struct stat status;
  if (::syscall(SYS_ftruncate, fd, FileOffsets::kEnd) != 0 ||
      ::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) != 0 || ::syscall(SYS_fstat, fd, &status) != 0) {
    const int error = errno;
    raw_close(fd);
    return error;
  }
  memory.device = status.st_dev;
  memory.inode = status.st_ino;
  guard(memory.file, fd);
  memory.present = true;
  return 0;
}

bool is_ours(const Mapping& mapping) {
  return memory.present && mapping.is_shared && mapping.inode == memory.inode &&
         mapping.device == memory.device;
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

/// Where in the file [begin, end) is to lie, `registered` memory or a queue's.
std::uint64_t take_offset(std::uint64_t begin, std::uint64_t end, bool registered) {
  if (registered && !memory.offsets.joins_neighbour(begin, end)) {
    const std::uint64_t offset = memory.ready.take(end - begin);
    if (offset != FileOffsets::kEnd) return offset;
  }
  return memory.offsets.take(begin, end);
}

/// Replaces [begin, end), one mapping's part inside a window of the file, by pages of the memfd. 0
/// or errno.
int swap_chunk(std::uint64_t begin, std::uint64_t end, int protection, bool registered) {
  const int file = memory.file.load(std::memory_order_relaxed);
  const std::uint64_t offset = take_offset(begin, end, registered);
  if (offset == FileOffsets::kEnd) return ENOSPC;
  for (std::uint64_t at = begin; at < end;) {
    const ssize_t written = ::syscall(SYS_pwrite64, file, at, end - at, offset + (at - begin));
    if (written <= 0) return written < 0 ? errno : EIO;
    at += static_cast<std::uint64_t>(written);
  }
  shared_pieces.add(begin, end);
  memory.swapped += end - begin;
  const long mapped =
      ::syscall(SYS_mmap, begin, end - begin, protection, MAP_SHARED | MAP_FIXED, file, offset);
  return mapped == -1 ? errno : 0;
}

/// Read without the lock by every command.
std::atomic<bool> pages_are_wanted;

/// `guard`: keeps other threads from the memory; null if nobody uses it. 0 or errno.
int swap_pages(const Mapping& part, StoreGuard* guard) {
  for (std::uint64_t at = part.begin; at < part.end;) {
    const std::uint64_t window_end = (at / FileOffsets::kWindow + 1) * FileOffsets::kWindow;
    const std::uint64_t chunk_end = window_end - at > kSwapChunk ? at + kSwapChunk : window_end;
    const std::uint64_t end = part.end > chunk_end ? chunk_end : part.end;
    if (guard != nullptr) {
      if (const int error = guard->protect(at, end)) return error;
    }
    const int error = swap_chunk(at, end, part.protection, guard != nullptr);
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

/// What [begin, end) consists of: `visit(part, is_shared)` for each part of a mapping, until it
/// returns an errno, which is the result. EFAULT: a part is not mapped or not readable.
template <typename Visit>
int for_each_part(std::uint64_t begin, std::uint64_t end, Visit visit) {
  MemoryMap map;
  if (!map.is_open()) return errno;
  Mapping part;
  for (std::uint64_t at = begin; at < end; at = part.end) {
    if (!map.find(at, part) || part.begin > at) return EFAULT;
    if ((part.protection & PROT_READ) == 0) return EFAULT;
    part.offset += at - part.begin;
    part.begin = at;
    if (part.end > end) part.end = end;
    if (const int error = visit(part, is_ours(part))) return error;
  }
  return 0;
}

/// Adds where [begin, end) lies in the file; `private_parts` counts parts that do not yet. 0 or why
/// they never can.
int look_up(std::uint64_t begin, std::uint64_t end, SharedPieces& pieces, unsigned& private_parts) {
  private_parts = 0;
  return for_each_part(begin, end, [&](const Mapping& part, bool is_shared) {
    if (!is_shared) {
      ++private_parts;
      return can_be_swapped(part) ? 0 : EINVAL;
    }
    return pieces.add({part.begin, part.end - part.begin, part.offset}) ? 0 : E2BIG;
  });
}

/// Swaps the first private part of [begin, end). 0 or errno.
int swap_first_private_part(std::uint64_t begin, std::uint64_t end, SharedPieces& pieces,
                            StoreGuard* guard) {
  Mapping found;
  constexpr int kFound = -1;
  const int result = for_each_part(begin, end, [&found](const Mapping& part, bool is_shared) {
    if (is_shared) return 0;
    found = part;
    return can_be_swapped(part) ? kFound : EINVAL;
  });
  if (result != kFound) return result;
  // Those of several parts are not filled all at once later.
  fill_page_tables(pieces.fresh_begin(), pieces.fresh_end());
  pieces.set_fresh(found.begin, found.end);
  return swap_pages(found, guard);
}

/// True if glibc has a heap of a thread there. Each begins at a multiple of 64 MiB, and that with
/// its description.
bool is_in_thread_heap(std::uint64_t address) {
  constexpr std::uint64_t kHeapSize = 64ULL << 20;  // HEAP_MAX_SIZE
  const std::uint64_t begin = address & ~(kHeapSize - 1);
  // Words, not memcpy(): where a sanitizer stands in front of that, the place is not for programs.
  const auto* words = reinterpret_cast<const volatile std::uint64_t*>(begin);
  if (!is_readable(reinterpret_cast<const void*>(begin), 4 * sizeof(*words))) return false;
  const std::uint64_t arena = words[0];  // Behind the description of the arena's first heap.
  const std::uint64_t previous = words[1];
  const std::uint64_t size = words[2];
  const std::uint64_t writable = words[3];
  return arena >= kHeapSize && arena % kHeapSize < kSharedPage && previous % kHeapSize == 0 &&
         size % kSharedPage == 0 && address - begin < size && size <= writable &&
         writable <= kHeapSize;
}

/// True if the page at `address` may hold what a heap of the C library keeps for itself, beside
/// blocks of the program. It must not be shared: fork() writes to locks of the heap in the child,
/// and threads of the parent to its lists, before the child has its own copy.
bool is_heap(std::uint64_t address) {
  Mapping mapping;
  MemoryMap map;
  if (!map.is_open() || !map.find(address, mapping) || is_ours(mapping)) return false;
  return mapping.is_heap || is_in_thread_heap(address);
}

/// Leaves out pages at both ends of which a part is another's.
ShareRange without_heap(ShareRange range) {
  if ((range.flags & kSharePartOfFirst) != 0 && is_heap(range.address)) {
    memory.private_pages.add(range.address);
    range.address += kSharedPage;
    range.length -= kSharedPage;
  }
  if ((range.flags & kSharePartOfLast) != 0 && range.length != 0 &&
      is_heap(range.address + range.length - kSharedPage)) {
    memory.private_pages.add(range.address + range.length - kSharedPage);
    range.length -= kSharedPage;
  }
  return range;
}

int share_range(const ShareRange& range, SharedPieces& pieces) {
  const std::uint64_t end = range.address + range.length;
  const SharedPieces::Mark before = pieces.mark();
  unsigned private_parts = 0;
  int error = look_up(range.address, end, pieces, private_parts);
  if (error == 0 && private_parts != 0) {
    if (!may_write_file()) return EFBIG;
    StoreGuard store_guard;
    StoreGuard* const guard = (range.flags & kShareInUse) != 0 ? &store_guard : nullptr;
    while (error == 0 && private_parts != 0) {
      error = swap_first_private_part(range.address, end, pieces, guard);
      pieces.return_to(before);
      if (error == 0) error = look_up(range.address, end, pieces, private_parts);
    }
  }
  return error;
}

/// The first page of [begin, end) that must stay private; `end`: there is none. Where no heap is
/// any more, the page was unmapped that the device reaches.
std::uint64_t find_private(std::uint64_t begin, std::uint64_t end) {
  std::uint64_t page = memory.private_pages.find(begin, end);
  while (page < end && !is_heap(page)) page = memory.private_pages.find(page + kSharedPage, end);
  return page;
}

/// As share_range(), but for pages that must stay private.
int share_what_may_be(const ShareRange& range, SharedPieces& pieces) {
  if ((range.flags & kShareAll) != 0) return share_range(range, pieces);
  const std::uint64_t end = range.address + range.length;
  for (std::uint64_t at = range.address; at < end;) {
    const std::uint64_t to = find_private(at, end);
    ShareRange part = range;
    part.address = at;
    part.length = to - at;
    if (const int error = to != at ? share_range(part, pieces) : 0) return error;
    if (to < end) pieces.leave_out();
    at = to + kSharedPage;
  }
  return 0;
}

/// Replaces one shared mapping by a private copy. False: it stays as it is.
bool make_private(const Mapping& mapping, int file) {
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
    return ::syscall(SYS_mmap, mapping.begin, length, mapping.protection, MAP_PRIVATE | MAP_FIXED,
                     file, mapping.offset) != -1;
  }
  if (mapping.protection != (PROT_READ | PROT_WRITE)) {
    ::syscall(SYS_mprotect, copy, length, mapping.protection);
  }
  if (::syscall(SYS_mremap, copy, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, mapping.begin) !=
      -1) {
    return true;
  }
  ::syscall(SYS_munmap, copy, length);
  return false;
}

void make_all_private() {
  constexpr unsigned kBatch = 64;
  const int file = memory.file.load(std::memory_order_relaxed);
  unsigned count = 0;
  bool moved = false;  // Where the system refuses everything, an end must be found all the same.
  do {
    Mapping found[kBatch];
    count = 0;
    moved = false;
    {
      MemoryMap map;
      if (!map.is_open()) return;
      Mapping mapping;
      while (count < kBatch && map.next(mapping)) {
        if (is_ours(mapping)) found[count++] = mapping;
      }
    }
    for (unsigned i = 0; i < count; ++i) moved = make_private(found[i], file) || moved;
  } while (count == kBatch && moved);
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
    const std::uint64_t copying = memory.swapped / kBytesPerMs;
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
  MemoryMap::forget_kept();
  if (memory.present) {
    make_all_private();
    raw_close(unguard(memory.file));
    memory.present = false;
    memory.ready.forget();
  }
  if (memory.forks_with_pipe) {
    raw_close(memory.fork_pipe[1]);
    raw_close(memory.fork_pipe[0]);
  }
  memory.lock.unlock();
  forget_parked_regions();
  forget_reply_descriptors();
}

std::atomic<bool> handles_fork;

}  // namespace

int share_ranges(const ShareRange* ranges, std::size_t count, SharedPieces& pieces) {
  const ErrnoGuard errno_guard;
  for (std::size_t i = 0; i < count; ++i) {
    if (!is_sensible(ranges[i])) return EIO;
    if (ranges[i].zero_at != 0 && !is_zero_at_inside(ranges[i])) return EIO;
  }
  prepare_for_fork();
  const LockGuard guard(memory.lock);
  if (!memory.present) {
    const int error = create_file();
    if (error != 0) return error;
  }
  pieces.clear();
  for (std::size_t i = 0; i < count; ++i) {
    const ShareRange range = without_heap(ranges[i]);
    if (range.length != ranges[i].length) pieces.leave_out();
    if (const int error = share_what_may_be(range, pieces)) return error;
    if (range.zero_at != 0) {
      reinterpret_cast<std::atomic<std::uint64_t>*>(range.zero_at)->store(0);
    }
  }
  return 0;
}

/// The kernel maps the neighbours of a page that is read (16 pages, where nobody has changed that),
/// and shared pages at once for writing: a third of the time that MAP_POPULATE takes, which looks
/// at every page.
void fill_page_tables(std::uint64_t begin, std::uint64_t end) {
  const ErrnoGuard errno_guard;
  constexpr int kPopulateRead = 22;  // MADV_POPULATE_READ
  constexpr std::uint64_t kNeighbours = 16 * kSharedPage;
  for (std::uint64_t at = begin; at < end; at = (at / kNeighbours + 1) * kNeighbours) {
    if (::syscall(SYS_madvise, at, kSharedPage, kPopulateRead) != 0) return;
  }
}

bool lies_at(std::uint64_t begin, std::uint64_t end, std::uint64_t place, bool writable) {
  const ErrnoGuard errno_guard;
  const int wanted = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  const LockGuard guard(memory.lock);
  MemoryMap map;
  Mapping mapping;
  for (std::uint64_t at = begin; at < end; at = mapping.end) {
    if (!map.is_open() || !map.find(at, mapping) || mapping.begin > at || !is_ours(mapping) ||
        (mapping.protection & wanted) != wanted ||
        mapping.offset + (at - mapping.begin) != place + (at - begin)) {
      return false;
    }
  }
  return true;
}

bool is_shared(std::uint64_t begin, std::uint64_t end) {
  if (begin >= end || !shared_pieces.may_hold(begin, end)) return false;
  const ErrnoGuard errno_guard;
  const LockGuard guard(memory.lock);
  MemoryMap map;
  Mapping mapping;
  for (std::uint64_t at = begin; at < end && map.is_open() && map.find(at, mapping);
       at = mapping.end) {
    if (mapping.begin < end && is_ours(mapping)) return true;
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
        if (mapping.end <= begin || !is_ours(mapping)) continue;
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
    if (!make_private(found, file)) return;
  }
}

void give_back_pages(std::uint64_t inode, const unsigned char* ranges, std::size_t count) {
  const ErrnoGuard errno_guard;
  const LockGuard guard(memory.lock);
  if (!memory.present || memory.inode != inode) return;
  const int file = memory.file.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < count; ++i) {
    FileRange range;
    std::memcpy(&range, ranges + i * sizeof(range), sizeof(range));
    ::syscall(SYS_fallocate, file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, range.offset,
              range.length);
    memory.ready.given_back(range.length);
  }
  if (memory.ready.are_wanted()) pages_are_wanted.store(true, std::memory_order_relaxed);
}

void prepare_pages(std::uint64_t, std::uint64_t) {
  // What follows the command is not to wait for more.
  constexpr unsigned kMostSteps = 16;
  if (!pages_are_wanted.load(std::memory_order_relaxed)) return;
  const ErrnoGuard errno_guard;
  for (unsigned step = 0; step < kMostSteps; ++step) {
    const LockGuard guard(memory.lock);
    const int file = memory.file.load(std::memory_order_relaxed);
    if (memory.present && may_write_file() && memory.ready.prepare(file, memory.offsets)) continue;
    pages_are_wanted.store(false, std::memory_order_relaxed);
    return;
  }
}

std::uint64_t discard_shared(std::uint64_t begin, std::uint64_t end) {
  if (begin >= end || !shared_pieces.may_hold(begin, end)) return 0;
  const ErrnoGuard errno_guard;
  const LockGuard guard(memory.lock);
  std::uint64_t replaced = 0;
  MemoryMap map;
  Mapping mapping;
  for (std::uint64_t at = begin; at < end && map.is_open() && map.find(at, mapping);
       at = mapping.end) {
    if (mapping.begin >= end) break;
    if (!is_ours(mapping)) continue;
    const std::uint64_t from = mapping.begin > begin ? mapping.begin : begin;
    const std::uint64_t to = mapping.end < end ? mapping.end : end;
    ::syscall(SYS_mmap, from, to - from, mapping.protection,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    replaced += to - from;
  }
  return replaced;
}

void prepare_for_fork() {
  if (handles_fork.exchange(true)) return;
  ::pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

int shared_memory_fd() {
  return memory.file.load(std::memory_order_relaxed);
}

}  // namespace softhca::shim::preload
