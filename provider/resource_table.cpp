// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/resource_table.h"

#include <new>

namespace softhca::provider {

ResourceTable::~ResourceTable() {
  for (std::atomic<Leaf*>& leaf : leaves_) delete leaf.load(std::memory_order_relaxed);
}

std::optional<std::uint32_t> ResourceTable::insert(Resource* resource) {
  const std::lock_guard lock(mutex_);
  for (std::uint32_t tried = 0; tried < kNone; ++tried) {
    const std::uint32_t index = next_;
    next_ = next_ + 1 == kNone ? 0 : next_ + 1;
    std::atomic<Leaf*>& leaf = leaves_[index >> kLeafBits];
    if (leaf.load(std::memory_order_relaxed) == nullptr) {
      Leaf* fresh = new (std::nothrow) Leaf;
      if (fresh == nullptr) return std::nullopt;
      leaf.store(fresh, std::memory_order_release);
    }
    std::atomic<Resource*>& entry =
        leaf.load(std::memory_order_relaxed)->entries[index & kLeafMask];
    if (entry.load(std::memory_order_relaxed) != nullptr) continue;
    resource->user_index = index;
    entry.store(resource, std::memory_order_release);
    return index;
  }
  return std::nullopt;
}

void ResourceTable::erase(std::uint32_t user_index) {
  const std::lock_guard lock(mutex_);
  Leaf* leaf = leaves_[user_index >> kLeafBits & kLeafMask].load(std::memory_order_relaxed);
  if (leaf != nullptr)
    leaf->entries[user_index & kLeafMask].store(nullptr, std::memory_order_release);
}

}  // namespace softhca::provider
