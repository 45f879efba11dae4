// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/preload/memory_map.h"

#include <cerrno>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace softhca::shim::preload {
namespace {

/// Digit value in bases up to 16, or -1.
int digit(int character) {
  if (character >= '0' && character <= '9') return character - '0';
  if (character >= 'a' && character <= 'f') return character - 'a' + 10;
  return -1;
}

}  // namespace

MemoryMap::MemoryMap()
    : fd_(static_cast<int>(
          ::syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC))) {}

MemoryMap::~MemoryMap() {
  if (fd_ >= 0) ::syscall(SYS_close, fd_);
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

/// A line is: begin-end rwxp offset major:minor inode  name.
bool MemoryMap::next(Mapping& mapping) {
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
  number(16);
  number(16);
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
  while (c != '\n' && c >= 0) c = get();
  return true;
}

}  // namespace softhca::shim::preload
