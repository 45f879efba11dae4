// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/property/host_memory.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

namespace softhca::property {

SlowMemory::SlowMemory(std::byte* base, std::size_t size, Random random, unsigned pending_per_mille)
    : base_(base), size_(size), random_(random), pending_per_mille_(pending_per_mille) {}

DmaStatus SlowMemory::read(std::uint64_t offset, void* to, std::size_t length) {
  if (offset > size_ || length > size_ - offset) return DmaStatus::fault;
  if (is_late()) return DmaStatus::pending;
  std::memcpy(to, base_ + offset, length);
  return DmaStatus::ok;
}

DmaStatus SlowMemory::write(std::uint64_t offset, const void* from, std::size_t length) {
  if (offset > size_ || length > size_ - offset) return DmaStatus::fault;
  if (is_late()) return DmaStatus::pending;
  std::memcpy(base_ + offset, from, length);
  return DmaStatus::ok;
}

bool SlowMemory::take_waiting() {
  return std::exchange(waiting_, false);
}

bool SlowMemory::is_late() {
  if (!random_.per_mille(pending_per_mille_)) return false;
  waiting_ = true;
  return true;
}

HostMemory::HostMemory(std::size_t pages, Random random)
    : storage_(pages * kPage), page_at_(pages) {
  for (std::size_t i = 0; i < storage_.size(); i += 8) {
    const std::uint64_t word = random.next();
    std::memcpy(&storage_[i], &word, 8);
  }
  std::iota(page_at_.begin(), page_at_.end(), 0U);
  for (std::size_t i = pages; i > 1; --i) std::swap(page_at_[i - 1], page_at_[random.below(i)]);
}

std::vector<std::uint64_t> HostMemory::pages() const {
  std::vector<std::uint64_t> result;
  for (const std::uint32_t page : page_at_) result.push_back(kIova + page * kPage);
  return result;
}

std::uint64_t HostMemory::allocate(const char* purpose, std::uint64_t length,
                                   std::uint64_t alignment) {
  const std::uint64_t start = (used_ + alignment - 1) / alignment * alignment;
  if (start + length + 32 > storage_.size()) return 0;
  used_ = start + length + 16;
  allocations_.push_back({kVa + start, length, purpose});
  return kVa + start;
}

std::string HostMemory::purpose_of(std::uint64_t va) const {
  for (const Allocation& allocation : allocations_) {
    if (va - allocation.va >= allocation.length) continue;
    return "byte " + std::to_string(va - allocation.va) + " of " +
           std::to_string(allocation.length) + " of a " + allocation.purpose;
  }
  return "memory that belongs to nobody";
}

const std::byte* HostMemory::at(std::uint64_t va) const {
  const std::uint64_t offset = va - kVa;
  return &storage_.at(page_at_.at(offset / kPage) * kPage + offset % kPage);
}

void HostMemory::read(std::uint64_t va, std::span<std::uint8_t> to) const {
  while (!to.empty()) {
    const std::size_t piece = std::min<std::uint64_t>(to.size(), kPage - (va - kVa) % kPage);
    std::memcpy(to.data(), at(va), piece);
    va += piece;
    to = to.subspan(piece);
  }
}

void HostMemory::write(std::uint64_t va, std::span<const std::uint8_t> from) {
  while (!from.empty()) {
    const std::size_t piece = std::min<std::uint64_t>(from.size(), kPage - (va - kVa) % kPage);
    std::memcpy(const_cast<std::byte*>(at(va)), from.data(), piece);
    va += piece;
    from = from.subspan(piece);
  }
}

std::vector<std::uint8_t> HostMemory::bytes(std::uint64_t va, std::uint64_t length) const {
  std::vector<std::uint8_t> result(length);
  read(va, result);
  return result;
}

}  // namespace softhca::property
