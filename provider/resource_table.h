// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

namespace softhca::provider {

/// What a CQE's user_index names: first member of queue pairs and XRC SRQs.
struct Resource {
  enum class Kind : std::uint8_t { queue_pair, shared_receive_queue };
  Kind kind = Kind::queue_pair;
  std::uint32_t user_index = 0;
};

/// Map from user_index (24 bits) to its object, read without a lock while completions are polled.
/// An entry is removed only after the CQs that could name it were cleaned under their locks.
class ResourceTable {
 public:
  /// Chooses an index, stores it in the resource and makes it findable; nothing when all are in
  /// use.
  std::optional<std::uint32_t> insert(Resource* resource);
  void erase(std::uint32_t user_index);
  /// Null for an index that names nothing.
  Resource* find(std::uint32_t user_index) const {
    const Leaf* leaf = leaves_[user_index >> kLeafBits & kLeafMask].load(std::memory_order_acquire);
    return leaf == nullptr ? nullptr
                           : leaf->entries[user_index & kLeafMask].load(std::memory_order_acquire);
  }

  ResourceTable() = default;
  ResourceTable(const ResourceTable&) = delete;
  ResourceTable& operator=(const ResourceTable&) = delete;
  ~ResourceTable();

 private:
  static constexpr unsigned kLeafBits = 12;
  static constexpr std::uint32_t kLeafMask = (1U << kLeafBits) - 1;
  /// The kernel's "no user index" value, never handed out.
  static constexpr std::uint32_t kNone = 0xffffff;
  struct Leaf {
    std::atomic<Resource*> entries[1U << kLeafBits]{};
  };

  std::mutex mutex_;
  std::uint32_t next_ = 0;
  std::atomic<Leaf*> leaves_[1U << kLeafBits]{};
};

}  // namespace softhca::provider
