// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/support/guest_memory.h"

#include <cstdlib>
#include <new>

namespace softhca::test {
namespace {

std::byte* allocate_zeroed(std::uint64_t size) {
  // calloc gives untouched zero pages for large sizes, so that big memories cost nothing until
  // used.
  auto* memory = static_cast<std::byte*>(std::calloc(1, size));
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

void GuestMemory::Free::operator()(std::byte* memory) const {
  std::free(memory);
}

GuestMemory::GuestMemory(std::uint64_t size, std::uint64_t iova)
    : size_(round_up(size, kPage)), iova_(iova), storage_(allocate_zeroed(size_ + kPage)) {
  const auto address = reinterpret_cast<std::uintptr_t>(storage_.get());
  base_ = storage_.get() + (round_up(address, kPage) - address);
}

void GuestMemory::map_into(DmaSpace& dma) const {
  DmaSpace::Range range;
  range.iova = iova_;
  range.size = size_;
  range.base = base_;
  dma.map(range);
}

std::uint64_t GuestMemory::allocate(std::uint64_t size, std::uint64_t alignment) {
  const std::uint64_t at = round_up(iova_ + used_, alignment);
  if (at + size > iova_ + size_) throw std::bad_alloc();
  used_ = at + size - iova_;
  return at;
}

}  // namespace softhca::test
