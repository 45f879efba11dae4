// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/device-server/file_memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <limits>

namespace softhca::emulator {
namespace {

constexpr std::uint64_t kMaxFileOffset = std::numeric_limits<off_t>::max();

/// Runs `transfer(done)` until `length` bytes are done. Every error is a fault, end-of-file is
/// `at_end`.
template <typename Transfer>
DmaStatus transfer_all(std::uint64_t offset, std::size_t length, DmaStatus at_end,
                       Transfer&& transfer) {
  if (offset > kMaxFileOffset || length > kMaxFileOffset - offset) return DmaStatus::fault;
  std::size_t done = 0;
  while (done < length) {
    const ssize_t result = transfer(done, static_cast<off_t>(offset + done));
    if (result > 0) {
      done += static_cast<std::size_t>(result);
    } else if (result == 0) {
      return at_end;
    } else if (errno != EINTR) {
      return DmaStatus::fault;
    }
  }
  return DmaStatus::ok;
}

/// Memory that cannot vanish under a mapping: sealed against shrinking and long enough.
bool is_safe_to_map(int fd, const struct stat& status, std::uint64_t offset, std::uint64_t size) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && status.st_size >= 0 &&
         offset + size <= static_cast<std::uint64_t>(status.st_size);
}

/// Maps [offset, offset + size) of the request's descriptor into `range`; false if the system
/// refuses.
bool map_direct(const vfio_user::DmaMapRequest& request, DmaSpace::Range& range) {
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t lead = request.offset % page;
  const std::uint64_t start = request.offset - lead;
  const std::size_t length = request.size + lead;
  const int protection =
      (request.readable ? PROT_READ : 0) | (request.writable ? PROT_READ | PROT_WRITE : 0);
  void* base =
      ::mmap(nullptr, length, protection, MAP_SHARED, request.fd.get(), static_cast<off_t>(start));
  if (base == MAP_FAILED) return false;
  auto* bytes = static_cast<std::byte*>(base);
  range.base = bytes + lead;
  range.backing = std::make_shared<MappedMemory>(Mapping(bytes, length), start);
  return true;
}

/// Pages that the kernel maps around one that is read (fault_around_bytes).
constexpr std::uintptr_t kMappedAround = 16;

/// Files beyond it are not mapped whole: they would take too much of the address space.
constexpr std::int64_t kMaxWindow = std::int64_t{1} << 42;

/// The whole of a file whose size is sealed both ways; null if it is none, or the system refuses.
std::shared_ptr<MappedMemory> map_window(int fd, const struct stat& status) {
  constexpr int kFixed = F_SEAL_SHRINK | F_SEAL_GROW;
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kFixed) != kFixed || status.st_size <= 0 ||
      status.st_size > kMaxWindow) {
    return nullptr;
  }
  const auto size = static_cast<std::size_t>(status.st_size);
  void* base = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) return nullptr;
  return std::make_shared<MappedMemory>(Mapping(static_cast<std::byte*>(base), size), 0);
}

/// True if both descriptors stand for one open file: they share the file position, which nobody
/// here uses. The inode alone does not tell: a process that called exec() has the same
/// /proc/PID/mem and another memory.
bool same_open_file(int known, int other) {
  const off_t before = ::lseek(other, 0, SEEK_CUR);
  if (before < 0) return false;
  const off_t mark = before ^ 0x5a5a000;
  if (::lseek(known, mark, SEEK_SET) != mark) return false;
  const bool same = ::lseek(other, 0, SEEK_CUR) == mark;
  ::lseek(known, before, SEEK_SET);
  return same;
}

}  // namespace

DmaStatus MappedMemory::read(std::uint64_t offset, void* to, std::size_t length) {
  const std::byte* const from = at(offset, length);
  if (from == nullptr) return DmaStatus::fault;
  std::copy_n(from, length, static_cast<std::byte*>(to));
  return DmaStatus::ok;
}

DmaStatus MappedMemory::write(std::uint64_t offset, const void* from, std::size_t length) {
  std::byte* const to = at(offset, length);
  if (to == nullptr) return DmaStatus::fault;
  std::copy_n(static_cast<const std::byte*>(from), length, to);
  return DmaStatus::ok;
}

DmaStatus FileMemory::read(std::uint64_t offset, void* to, std::size_t length) {
  return transfer_all(offset, length, at_end_, [&](std::size_t done, off_t at) {
    return ::pread(fd_.get(), static_cast<char*>(to) + done, length - done, at);
  });
}

DmaStatus FileMemory::write(std::uint64_t offset, const void* from, std::size_t length) {
  return transfer_all(offset, length, at_end_, [&](std::size_t done, off_t at) {
    return ::pwrite(fd_.get(), static_cast<const char*>(from) + done, length - done, at);
  });
}

/// Serves `range` from the file's window, if it has one, and the request's descriptor allows as
/// much as the window.
bool FileMemoryTable::use_window(const FileId& id, const vfio_user::DmaMapRequest& request,
                                 DmaSpace::Range& range) {
  const auto known = windows_.find(id);
  if (known == windows_.end()) return false;
  std::shared_ptr<MappedMemory> window = known->second.lock();
  if (window == nullptr) {
    // The number may be another file's by now.
    windows_.erase(known);
    return false;
  }
  std::byte* const base = window->at(request.offset, request.size);
  const int mode = ::fcntl(request.fd.get(), F_GETFL);
  if (base == nullptr || mode < 0 || (mode & O_ACCMODE) != O_RDWR) return false;
  range.base = base;
  range.backing = std::move(window);
  return true;
}

std::errc FileMemoryTable::open(vfio_user::DmaMapRequest request, DmaSpace::Range& range) {
  struct stat status {};
  if (::fstat(request.fd.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    return std::errc::invalid_argument;
  }
  range.iova = request.iova;
  range.size = request.size;
  range.readable = request.readable;
  range.writable = request.writable;
  range.backing_offset = request.offset;
  const FileId id{status.st_dev, status.st_ino};
  if (use_window(id, request, range)) return {};
  struct statfs filesystem {};
  if (::fstatfs(request.fd.get(), &filesystem) != 0) return std::errc::invalid_argument;
  const auto type = static_cast<unsigned long>(filesystem.f_type);
  // A FUSE server may let a read hang; a fault in a hugetlb mapping without a free page is SIGBUS.
  if (type == FUSE_SUPER_MAGIC || type == HUGETLBFS_MAGIC) return std::errc::not_supported;
  if (const std::shared_ptr<MappedMemory> window = map_window(request.fd.get(), status)) {
    windows_[id] = window;
    if (use_window(id, request, range)) return {};
  }
  if (is_safe_to_map(request.fd.get(), status, request.offset, request.size) &&
      map_direct(request, range)) {
    populate(range.base, range.size);
    return {};
  }
  // A process whose memory has gone (proc(5): its mem reads as empty) is ending, and its driver has
  // not cleaned up yet. On hardware its pages are still there and nobody looks at them: the access
  // waits for the clean-up, so that a peer sees no answer rather than an error of access.
  const DmaStatus at_end = type == PROC_SUPER_MAGIC ? DmaStatus::pending : DmaStatus::fault;
  range.backing = share(id, std::move(request.fd), at_end);
  return {};
}

/// Whoever maps memory for a device means it to be used, and this costs a tenth of the faults. Its
/// failure only means that the faults are still to come. The budget takes the engine about a
/// millisecond, which the other devices of the fabric wait.
///
/// The kernel maps the neighbours of a page that is read, and shared pages at once for writing: one
/// page in 16 is asked for, in a third of the time that all of them take.
void FileMemoryTable::populate(std::byte* base, std::size_t length) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const auto lead = reinterpret_cast<std::uintptr_t>(base) % page;
  if (length + lead > populatable_) return;
  populatable_ -= length + lead;
  const std::uintptr_t stride = kMappedAround * page;
  const std::uintptr_t end = reinterpret_cast<std::uintptr_t>(base) + length;
  for (std::uintptr_t at = reinterpret_cast<std::uintptr_t>(base) - lead; at < end;
       at = (at / stride + 1) * stride) {
    if (::madvise(reinterpret_cast<void*>(at), page, MADV_POPULATE_READ) != 0) return;
  }
}

std::shared_ptr<FileMemory> FileMemoryTable::share(FileId id, vfio_user::FileDescriptor fd,
                                                   DmaStatus at_end) {
  for (auto at = files_.begin(); at != files_.end();) {
    std::erase_if(at->second, [](const auto& file) { return file.expired(); });
    at = at->second.empty() ? files_.erase(at) : std::next(at);
  }
  auto& known = files_[id];
  for (const auto& candidate : known) {
    if (auto file = candidate.lock(); file && same_open_file(file->fd(), fd.get())) return file;
  }
  auto file = std::make_shared<FileMemory>(std::move(fd), at_end);
  known.push_back(file);
  return file;
}

std::size_t FileMemoryTable::open_files() const {
  std::size_t count = 0;
  for (const auto& [id, files] : files_) {
    for (const auto& file : files) count += file.expired() ? 0 : 1;
  }
  return count;
}

}  // namespace softhca::emulator
