// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/preload/memory_map.h"

#include <cerrno>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "kernel-shim/preload/guarded_fds.h"
#include "kernel-shim/protocol/procmap_query.h"

namespace softhca::shim::preload {
namespace {

/// Digit value in bases up to 16, or -1.
int digit(int character) {
  if (character >= '0' && character <= '9') return character - '0';
  if (character >= 'a' && character <= 'f') return character - 'a' + 10;
  return -1;
}

int open_maps() {
  return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC));
}

/// For questions. A child that was made without our fork handlers has the parent's.
struct Kept {
  GuardedFd fd;
  pid_t of;  // 0: none.
};
Kept kept_maps;

}  // namespace

MemoryMap::MemoryMap() {
  const pid_t own = ::getpid();
  if (kept_maps.of == 0) {
    const int fd = open_maps();
    if (fd >= 0) {
      guard(kept_maps.fd, fd);
      kept_maps.of = own;
    }
  }
  is_kept_ = kept_maps.of == own;
  fd_ = is_kept_ ? kept_maps.fd.load(std::memory_order_relaxed) : open_maps();
}

MemoryMap::~MemoryMap() {
  if (fd_ >= 0 && !is_kept_) ::syscall(SYS_close, fd_);
}

void MemoryMap::forget_kept() {
  if (kept_maps.of == 0) return;
  ::syscall(SYS_close, unguard(kept_maps.fd));
  kept_maps.of = 0;
}

/// The kept one has been read before, or a program that closes descriptors by system calls of its
/// own has put another file into its place.
bool MemoryMap::own_descriptor() {
  if (!is_kept_) return fd_ >= 0;
  is_kept_ = false;
  fd_ = open_maps();
  return fd_ >= 0;
}

/// The next character, or -1 at the end.
int MemoryMap::get() {
  if (at_ == length_) {
    do {
      length_ = ::syscall(SYS_read, fd_, buffer_, sizeof(buffer_));
    } while (length_ < 0 && errno == EINTR);
    at_ = 0;
    if (length_ <= 0) {
      length_ = 0;
      return -1;
    }
  }
  return static_cast<unsigned char>(buffer_[at_++]);
}

bool MemoryMap::query(std::uint64_t address, Mapping& mapping) {
  ProcmapQuery query;
  query.query_flags = kProcmapCoveringOrNext;
  query.query_address = address;
  while (::syscall(SYS_ioctl, fd_, kProcmapQuery, &query) != 0) {
    has_query_ = errno == ENOENT || errno == ESRCH;
    if (has_query_ || !is_kept_ || !own_descriptor()) return false;
  }
  mapping.begin = query.begin;
  mapping.end = query.end;
  mapping.protection = (query.flags & kProcmapReadable) != 0 ? PROT_READ : PROT_NONE;
  if ((query.flags & kProcmapWritable) != 0) mapping.protection |= PROT_WRITE;
  if ((query.flags & kProcmapExecutable) != 0) mapping.protection |= PROT_EXEC;
  mapping.is_shared = (query.flags & kProcmapShared) != 0;
  mapping.offset = query.offset;
  mapping.device = makedev(query.device_major, query.device_minor);
  mapping.inode = query.inode;
  mapping.is_stack_or_kernels = false;
  mapping.is_heap = false;
  if (query.inode != 0) return true;
  // Names of files are long, and the kernel takes its time to make them.
  char name[128];
  query.name = reinterpret_cast<std::uint64_t>(name);
  query.name_size = sizeof(name);
  query.query_address = mapping.begin;
  if (::syscall(SYS_ioctl, fd_, kProcmapQuery, &query) == 0 && query.name_size >= 2) {
    mapping.is_stack_or_kernels = name[0] == '[' && (name[1] == 's' || name[1] == 'v');
    mapping.is_heap = name[0] == '[' && name[1] == 'h';
  }
  return true;
}

bool MemoryMap::find(std::uint64_t address, Mapping& mapping) {
  if (has_query_) {
    const bool found = query(address, mapping);
    if (has_query_) return found;
  }
  while (next(mapping)) {
    if (mapping.end > address) return true;
  }
  return false;
}

/// A line is: begin-end rwxp offset major:minor inode  name.
bool MemoryMap::next(Mapping& mapping) {
  if (!own_descriptor()) return false;
  const auto number = [this](int base) {
    std::uint64_t value = 0;
    for (int c = get();; c = get()) {
      const int d = digit(c);
      if (d < 0 || d >= base) return value;  // The delimiter is used up.
      value = value * static_cast<unsigned>(base) + static_cast<unsigned>(d);
    }
  };
  mapping.begin = number(16);
  mapping.end = number(16);
  if (mapping.end == 0) return false;
  mapping.protection = get() == 'r' ? PROT_READ : PROT_NONE;
  if (get() == 'w') mapping.protection |= PROT_WRITE;
  if (get() == 'x') mapping.protection |= PROT_EXEC;
  mapping.is_shared = get() == 's';
  get();
  mapping.offset = number(16);
  const auto device_major = static_cast<unsigned>(number(16));
  mapping.device = makedev(device_major, static_cast<unsigned>(number(16)));
  mapping.inode = 0;
  int c = get();
  for (; digit(c) >= 0; c = get()) {
    mapping.inode = mapping.inode * 10 + static_cast<unsigned>(digit(c));
  }
  while (c == ' ') c = get();
  // "[stack]", "[vvar]", "[vdso]"; "[heap]" and "[anon:...]" are ordinary memory.
  const bool is_special = c == '[';
  if (is_special) c = get();
  mapping.is_stack_or_kernels = is_special && (c == 's' || c == 'v');
  mapping.is_heap = is_special && c == 'h';
  while (c != '\n' && c >= 0) c = get();
  return true;
}

}  // namespace softhca::shim::preload
