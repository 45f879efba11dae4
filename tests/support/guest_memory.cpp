// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/support/guest_memory.h"

#include <sys/mman.h>

#include <new>
#include <stdexcept>

namespace softhca::test {
namespace {

/// Whole pages straight from the system: untouched ones cost nothing, also under a sanitizer.
std::byte* map_pages(std::uint64_t size) {
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return static_cast<std::byte*>(memory);
}

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

GuestMemory::GuestMemory(std::uint64_t size, std::uint64_t iova)
    : size_(round_up(size, kPage)), iova_(iova), base_(map_pages(size_)) {}

GuestMemory::~GuestMemory() {
  munmap(base_, size_);
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
