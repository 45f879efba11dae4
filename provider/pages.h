// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "hw-model/prm/big_endian.h"

namespace softhca::provider {

/// Custom allocator of a parent domain (ibv_alloc_parent_domain). `allocate` null: none.
struct CustomAllocator {
  ibv_pd* domain = nullptr;
  void* context = nullptr;
  void* (*allocate)(ibv_pd*, void* context, std::size_t size, std::size_t alignment,
                    std::uint64_t type) = nullptr;
  void (*release)(ibv_pd*, void* context, void* pointer, std::uint64_t type) = nullptr;
};

/// Resource types that the allocator is called with; the values are those of mlx5dv.
enum class AllocationType : std::uint64_t { qp = 1, cq = 2, srq = 3, doorbell_record = 4 };

/// Memory of one queue: whole zeroed pages that hold nothing else, hidden from fork()ed children
/// when the application asked for that (ibv_fork_init). On huge pages of 2 MiB when
/// MLX_{QP,CQ,SRQ}_ALLOC_TYPE says HUGE or PREFER_HUGE; on a virtual host that may be slower, since
/// huge pages cannot be shared with the device there and are copied through the kernel. Move-only.
class QueuePages {
 public:
  QueuePages() = default;
  QueuePages(const QueuePages&) = delete;
  QueuePages& operator=(const QueuePages&) = delete;
  QueuePages(QueuePages&& other) noexcept { *this = static_cast<QueuePages&&>(other); }
  QueuePages& operator=(QueuePages&& other) noexcept;
  ~QueuePages() { reset(); }

  /// False with errno when there is no memory. `size` is rounded up to pages.
  bool allocate(std::size_t size, const CustomAllocator& allocator, AllocationType type);
  void reset();

  std::uint8_t* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  std::uint8_t* data_ = nullptr;
  std::size_t size_ = 0;
  bool custom_ = false;
  AllocationType type_ = AllocationType::qp;
  CustomAllocator allocator_;
};

/// Hands out doorbell records: 8 bytes each, at the start of a 64-byte slot of a page of their own,
/// so that neighbours share no cache line.
class DoorbellRecords {
 public:
  DoorbellRecords() = default;
  DoorbellRecords(const DoorbellRecords&) = delete;
  DoorbellRecords& operator=(const DoorbellRecords&) = delete;
  ~DoorbellRecords() = default;

  /// A zeroed record of two words; null with errno when there is no memory.
  prm::Be32* allocate();
  void release(prm::Be32* record);

  static constexpr std::size_t kSlot = 64;

 private:
  struct Page {
    QueuePages memory;
    std::uint64_t used = 0;  ///< One bit per slot.
  };
  static constexpr std::size_t kPageSize = 4096;
  static_assert(kPageSize / kSlot == 64);

  std::mutex mutex_;
  std::vector<Page> pages_;
};

}  // namespace softhca::provider
