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

#include "emulator/device-server/shared_memory.h"

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

/// Keeps a mapping alive for as long as a range refers to it.
class MappedMemory final : public DmaBacking {
 public:
  MappedMemory(Mapping mapping, std::uint64_t start)
      : mapping_(std::move(mapping)), start_(start) {}
  // The range's base pointer serves every access; these are for callers that hold the backing
  // alone.
  DmaStatus read(std::uint64_t offset, void* to, std::size_t length) override {
    if (!inside(offset, length)) return DmaStatus::fault;
    std::copy_n(mapping_.base() + (offset - start_), length, static_cast<std::byte*>(to));
    return DmaStatus::ok;
  }
  DmaStatus write(std::uint64_t offset, const void* from, std::size_t length) override {
    if (!inside(offset, length)) return DmaStatus::fault;
    std::copy_n(static_cast<const std::byte*>(from), length, mapping_.base() + (offset - start_));
    return DmaStatus::ok;
  }

 private:
  bool inside(std::uint64_t offset, std::size_t length) const {
    return offset >= start_ && offset - start_ <= mapping_.size() &&
           length <= mapping_.size() - (offset - start_);
  }
  Mapping mapping_;
  std::uint64_t start_;
};

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

std::errc FileMemoryTable::open(vfio_user::DmaMapRequest request, DmaSpace::Range& range) {
  struct stat status {};
  struct statfs filesystem {};
  if (::fstat(request.fd.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
      ::fstatfs(request.fd.get(), &filesystem) != 0) {
    return std::errc::invalid_argument;
  }
  const auto type = static_cast<unsigned long>(filesystem.f_type);
  // A FUSE server may let a read hang; a fault in a hugetlb mapping without a free page is SIGBUS.
  if (type == FUSE_SUPER_MAGIC || type == HUGETLBFS_MAGIC) return std::errc::not_supported;
  range.iova = request.iova;
  range.size = request.size;
  range.readable = request.readable;
  range.writable = request.writable;
  range.backing_offset = request.offset;
  if (is_safe_to_map(request.fd.get(), status, request.offset, request.size) &&
      map_direct(request, range)) {
    return {};
  }
  // A process whose memory has gone (proc(5): its mem reads as empty) is ending, and its driver has
  // not cleaned up yet. On hardware its pages are still there and nobody looks at them: the access
  // waits for the clean-up, so that a peer sees no answer rather than an error of access.
  const DmaStatus at_end = type == PROC_SUPER_MAGIC ? DmaStatus::pending : DmaStatus::fault;
  range.backing = share({status.st_dev, status.st_ino}, std::move(request.fd), at_end);
  return {};
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
