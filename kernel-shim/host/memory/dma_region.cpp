// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/host/memory/dma_region.h"

#include <cerrno>
#include <optional>

namespace softhca::shim {
namespace {

constexpr std::uint64_t kMapPage = IovaAllocator::kPage;
constexpr std::uint64_t kMapPageMask = kMapPage - 1;

}  // namespace

DmaRegion::~DmaRegion() {
  if (device_ != nullptr) device_->dma_unmap(map_iova_, map_size_);
}

int DmaRegion::place(IovaAllocator& iovas, std::uint64_t start, std::uint64_t length,
                     std::uint64_t alignment, std::uint64_t congruent, DmaRegion& region) {
  const std::uint64_t in_page = start & kMapPageMask;
  if (length == 0 || length > IovaAllocator::kLimit || start + length < start ||
      start > ~0ULL - length - kMapPage || (congruent & kMapPageMask) != in_page) {
    return EINVAL;
  }
  const std::uint64_t size = (in_page + length + kMapPageMask) & ~kMapPageMask;
  const std::optional<std::uint64_t> base =
      iovas.allocate(size, alignment, (congruent - in_page) & (alignment - 1));
  if (!base) return ENOMEM;
  region.map_iova_ = *base;
  region.map_size_ = size;
  region.iova_ = *base + in_page;
  return 0;
}

int DmaRegion::map(PciDevice& device, IovaAllocator& iovas, std::span<const DmaPiece> pieces,
                   std::uint64_t start, std::uint64_t length, std::uint64_t alignment,
                   std::uint64_t congruent, bool writable, DmaRegion& region) {
  DmaRegion mapped;
  if (const int error = place(iovas, start, length, alignment, congruent, mapped)) return error;
  std::uint64_t done = 0;
  for (const DmaPiece& piece : pieces) {
    if (const int error = device.dma_map(mapped.map_iova_ + done, piece.length, piece.fd,
                                         piece.offset, writable)) {
      if (done != 0) device.dma_unmap(mapped.map_iova_, done);
      return error;
    }
    done += piece.length;
  }
  mapped.device_ = &device;
  region = std::move(mapped);
  return 0;
}

int DmaRegion::start_map(PciDevice& device, IovaAllocator& iovas, const DmaPiece& piece,
                         std::uint64_t start, std::uint64_t length, std::uint64_t alignment,
                         std::uint64_t congruent, bool writable, DmaRegion& region) {
  DmaRegion mapped;
  if (const int error = place(iovas, start, length, alignment, congruent, mapped)) return error;
  if (const int error =
          device.start_dma_map(mapped.map_iova_, piece.length, piece.fd, piece.offset, writable)) {
    return error;
  }
  mapped.device_ = &device;
  region = std::move(mapped);
  return 0;
}

}  // namespace softhca::shim
