// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/pages.h"

#include <linux/mman.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "provider/abi/commands.h"

namespace softhca::provider {
namespace {

std::size_t page_size() {
  static const auto size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

enum class HugePages : std::uint8_t { no, preferred, required };

/// What the user asks for by MLX_{QP,CQ,SRQ}_ALLOC_TYPE, the variables of mlx5 providers.
HugePages wanted_huge_pages(AllocationType type) {
  const char* variable = type == AllocationType::qp    ? "MLX_QP_ALLOC_TYPE"
                         : type == AllocationType::cq  ? "MLX_CQ_ALLOC_TYPE"
                         : type == AllocationType::srq ? "MLX_SRQ_ALLOC_TYPE"
                                                       : nullptr;
  const char* value = variable == nullptr ? nullptr : std::getenv(variable);
  if (value == nullptr) return HugePages::no;
  if (std::strcmp(value, "HUGE") == 0) return HugePages::required;
  return std::strcmp(value, "PREFER_HUGE") == 0 ? HugePages::preferred : HugePages::no;
}

/// Anonymous memory of at least `length` bytes, which is set to what it is; MAP_FAILED and errno.
void* map_pages(std::size_t& length, HugePages huge) {
  constexpr int kProtection = PROT_READ | PROT_WRITE;
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS;
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  if (huge != HugePages::no && length <= SIZE_MAX - kHugePage) {
    const std::size_t rounded = (length + kHugePage - 1) / kHugePage * kHugePage;
    // Of this size, whatever the system's default is.
    void* memory = mmap(nullptr, rounded, kProtection, kFlags | MAP_HUGETLB | MAP_HUGE_2MB, -1, 0);
    if (memory != MAP_FAILED || huge == HugePages::required) {
      length = rounded;
      return memory;
    }
  }
  return mmap(nullptr, length, kProtection, kFlags, -1, 0);
}

}  // namespace

QueuePages& QueuePages::operator=(QueuePages&& other) noexcept {
  if (this != &other) {
    reset();
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    custom_ = other.custom_;
    type_ = other.type_;
    allocator_ = other.allocator_;
  }
  return *this;
}

bool QueuePages::allocate(std::size_t size, const CustomAllocator& allocator, AllocationType type) {
  reset();
  const std::size_t page = page_size();
  if (size == 0 || size > SIZE_MAX - page) {
    errno = EINVAL;
    return false;
  }
  std::size_t length = (size + page - 1) / page * page;
  void* memory = nullptr;
  custom_ = false;
  if (allocator.allocate != nullptr) {
    memory = allocator.allocate(allocator.domain, allocator.context, length, page,
                                static_cast<std::uint64_t>(type));
    if (memory == nullptr) {
      errno = ENOMEM;
      return false;
    }
    custom_ = memory != IBV_ALLOCATOR_USE_DEFAULT;
  }
  if (custom_) {
    if (reinterpret_cast<std::uintptr_t>(memory) % page != 0) {
      allocator.release(allocator.domain, allocator.context, memory,
                        static_cast<std::uint64_t>(type));
      custom_ = false;
      errno = EINVAL;
      return false;
    }
    std::memset(memory, 0, length);
  } else {
    memory = map_pages(length, wanted_huge_pages(type));
    if (memory == MAP_FAILED) return false;
    if (const int error = abi::ibv_dontfork_range(memory, length); error != 0) {
      munmap(memory, length);
      errno = error > 0 ? error : ENOMEM;
      return false;
    }
  }
  data_ = static_cast<std::uint8_t*>(memory);
  size_ = length;
  type_ = type;
  allocator_ = allocator;
  return true;
}

void QueuePages::reset() {
  if (data_ == nullptr) return;
  if (custom_) {
    allocator_.release(allocator_.domain, allocator_.context, data_,
                       static_cast<std::uint64_t>(type_));
  } else {
    abi::ibv_dofork_range(data_, size_);
    munmap(data_, size_);
  }
  data_ = nullptr;
  size_ = 0;
}

prm::Be32* DoorbellRecords::allocate() {
  const std::lock_guard lock(mutex_);
  Page* page = nullptr;
  for (Page& candidate : pages_) {
    if (~candidate.used != 0) page = &candidate;
  }
  if (page == nullptr) {
    Page fresh;
    if (!fresh.memory.allocate(kPageSize, {}, AllocationType::doorbell_record)) return nullptr;
    pages_.push_back(std::move(fresh));
    page = &pages_.back();
  }
  const int slot = std::countr_one(page->used);
  page->used |= 1ULL << slot;
  auto* record =
      reinterpret_cast<prm::Be32*>(page->memory.data() + static_cast<std::size_t>(slot) * kSlot);
  record[0].raw = 0;
  record[1].raw = 0;
  return record;
}

void DoorbellRecords::release(prm::Be32* record) {
  if (record == nullptr) return;
  const std::lock_guard lock(mutex_);
  const auto* address = reinterpret_cast<const std::uint8_t*>(record);
  for (auto page = pages_.begin(); page != pages_.end(); ++page) {
    if (address < page->memory.data() || address >= page->memory.data() + kPageSize) continue;
    page->used &= ~(1ULL << static_cast<std::size_t>(address - page->memory.data()) / kSlot);
    if (page->used == 0) pages_.erase(page);
    return;
  }
}

}  // namespace softhca::provider
