// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/support/guest_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <new>
#include <stdexcept>

namespace softhca::test {
namespace {

/// Whole pages straight from the system: untouched ones cost nothing, also under a sanitizer.
std::byte* map_pages(std::uint64_t size, int fd) {
  const int kind = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, kind | MAP_NORESERVE, fd, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return static_cast<std::byte*>(memory);
}

/// A server maps only what cannot shrink under it.
int make_shared_file(std::uint64_t size) {
  const int fd = memfd_create("guest-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(size)) != 0 ||
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) != 0) {
    throw std::bad_alloc();
  }
  return fd;
}

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

GuestMemory::GuestMemory(std::uint64_t size, std::uint64_t iova, Kind kind)
    : size_(round_up(size, kPage)),
      iova_(iova),
      fd_(kind == Kind::shared ? make_shared_file(size_) : -1),
      base_(map_pages(size_, fd_)) {}

GuestMemory::~GuestMemory() {
  munmap(base_, size_);
  if (fd_ >= 0) close(fd_);
}

void GuestMemory::map_into(DmaSpace& dma) const {
  DmaSpace::Range range;
  range.iova = iova_;
  range.size = size_;
  range.base = base_;
  if (dma.map(range) != std::errc{}) throw std::logic_error("the device has memory there already");
}

std::uint64_t GuestMemory::allocate(std::uint64_t size, std::uint64_t alignment) {
  const std::uint64_t at = round_up(iova_ + used_, alignment);
  if (at + size > iova_ + size_) throw std::bad_alloc();
  used_ = at + size - iova_;
  return at;
}

}  // namespace softhca::test
