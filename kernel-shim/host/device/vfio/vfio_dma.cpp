// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/host/device/vfio/vfio_dma.h"

#include <linux/vfio.h>
#include <spdlog/spdlog.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <vector>

#include "kernel-shim/host/memory/iova_allocator.h"

namespace softhca::shim {
namespace {

/// What VFIO_IOMMU_GET_INFO answers, capabilities included; empty: the kernel refuses.
std::vector<std::uint8_t> iommu_info(int container) {
  std::vector<std::uint8_t> info(sizeof(vfio_iommu_type1_info));
  for (int attempt = 0; attempt < 2; ++attempt) {
    vfio_iommu_type1_info head{};
    head.argsz = static_cast<std::uint32_t>(info.size());
    std::memcpy(info.data(), &head, sizeof(head));
    if (::ioctl(container, VFIO_IOMMU_GET_INFO, info.data()) != 0) return {};
    std::memcpy(&head, info.data(), sizeof(head));
    if (head.argsz <= info.size()) break;
    info.assign(head.argsz, 0);
  }
  return info;
}

/// A structure at `offset` of an answer; nothing if it does not fit.
template <typename T>
std::optional<T> at(const std::vector<std::uint8_t>& bytes, std::size_t offset) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

/// End of the range that holds IovaAllocator::kFirst; 0 if none does. Without the capability every
/// address goes.
std::uint64_t usable_end(const std::vector<std::uint8_t>& info) {
  using Ranges = vfio_iommu_type1_info_cap_iova_range;
  const auto head = at<vfio_iommu_type1_info>(info, 0);
  if (!head || (head->flags & VFIO_IOMMU_INFO_CAPS) == 0) return IovaAllocator::kLimit;
  std::size_t offset = head->cap_offset;
  // The chain may not be longer than the answer.
  for (std::size_t left = info.size() / sizeof(vfio_info_cap_header); offset != 0 && left != 0;
       --left) {
    const auto capability = at<vfio_info_cap_header>(info, offset);
    if (!capability) break;
    if (capability->id == VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE) {
      const auto count = at<std::uint32_t>(info, offset + offsetof(Ranges, nr_iovas));
      for (std::uint32_t i = 0; count && i < *count; ++i) {
        const auto range =
            at<vfio_iova_range>(info, offset + sizeof(Ranges) + i * sizeof(vfio_iova_range));
        if (!range) break;
        if (range->start <= IovaAllocator::kFirst && range->end >= IovaAllocator::kFirst) {
          return std::min<std::uint64_t>(range->end, IovaAllocator::kLimit - 1) + 1;
        }
      }
      return 0;
    }
    offset = capability->next;
  }
  return IovaAllocator::kLimit;
}

void explain_refusal(int error) {
  // Once: a program that registers in a loop would fill the log.
  static bool is_told = false;
  if (is_told || (error != ENOMEM && error != ENOSPC)) return;
  is_told = true;
  spdlog::error(error == ENOMEM
                    ? "the kernel pins no more memory for the device: raise the limit of locked "
                      "memory (ulimit -l)"
                    : "the kernel makes no more DMA maps: raise dma_entry_limit of the module "
                      "vfio_iommu_type1");
}

}  // namespace

runtime::Result<VfioDma> VfioDma::open(int container) {
  const std::vector<std::uint8_t> info = iommu_info(container);
  if (info.empty()) return runtime::system_error(errno, "what the IOMMU can do");
  const std::uint64_t end = usable_end(info);
  if (end == 0) return runtime::Error{ENOTSUP, "the IOMMU translates no addresses from 4 GiB on"};
  return VfioDma(container, end);
}

VfioDma::~VfioDma() {
  for (const auto& [iova, window] : windows_) ::munmap(window.base, window.size);
}

int VfioDma::map(std::uint64_t iova, std::uint64_t size, int fd, std::uint64_t offset,
                 bool writable) {
  void* const base = ::mmap(nullptr, size, writable ? PROT_READ | PROT_WRITE : PROT_READ,
                            MAP_SHARED, fd, static_cast<off_t>(offset));
  // ENODEV, which such files give, would mean that the device is gone.
  if (base == MAP_FAILED) return errno == ENODEV ? EOPNOTSUPP : errno;
  // In a child of fork() the pages would be copied or be shared once more; nothing there needs
  // them.
  ::madvise(base, size, MADV_DONTFORK);
  vfio_iommu_type1_dma_map request{};
  request.argsz = sizeof(request);
  request.flags = VFIO_DMA_MAP_FLAG_READ | (writable ? VFIO_DMA_MAP_FLAG_WRITE : 0U);
  request.vaddr = reinterpret_cast<std::uintptr_t>(base);
  request.iova = iova;
  request.size = size;
  if (::ioctl(container_, VFIO_IOMMU_MAP_DMA, &request) != 0) {
    const int error = errno;
    ::munmap(base, size);
    explain_refusal(error);
    return error;
  }
  windows_[iova] = Window{base, size};
  return 0;
}

int VfioDma::unmap(std::uint64_t iova, std::uint64_t size) {
  vfio_iommu_type1_dma_unmap request{};
  request.argsz = sizeof(request);
  request.iova = iova;
  request.size = size;
  if (::ioctl(container_, VFIO_IOMMU_UNMAP_DMA, &request) != 0) return errno;
  const auto first = windows_.lower_bound(iova);
  auto last = first;
  for (; last != windows_.end() && last->first - iova < size; ++last) {
    ::munmap(last->second.base, last->second.size);
  }
  windows_.erase(first, last);
  return 0;
}

}  // namespace softhca::shim
