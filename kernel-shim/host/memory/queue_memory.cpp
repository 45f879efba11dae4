// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/host/memory/queue_memory.h"

#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cerrno>

namespace softhca::shim {
namespace {

constexpr std::uint64_t kQueueMapPage = IovaAllocator::kPage;
constexpr std::uint64_t kQueuePageMask = kQueueMapPage - 1;
/// Largest page of a queue buffer: log_page_size has five bits.
constexpr std::uint64_t kMaxQueuePage = 1ULL << 31;

}  // namespace

int DoorbellPages::map(const DmaPiece& piece, std::uint64_t address,
                       std::shared_ptr<DmaRegion>& hold, std::uint64_t& iova) {
  if ((address & 7) != 0) return EINVAL;
  const std::uint64_t page = address & ~kQueuePageMask;
  struct stat file {};
  if (::fstat(piece.fd, &file) != 0) return EBADF;
  const Page key{file.st_dev, file.st_ino, piece.offset};
  std::shared_ptr<DmaRegion> region = pages_[key].lock();
  if (region == nullptr) {
    region = std::make_shared<DmaRegion>();
    if (const int error = DmaRegion::map(device_, iovas_, std::span(&piece, 1), page, kQueueMapPage,
                                         kQueueMapPage, page, true, *region)) {
      pages_.erase(key);
      return error;
    }
    std::erase_if(pages_, [](const auto& entry) { return entry.second.expired(); });
    pages_[key] = region;
  }
  iova = region->iova() + (address - page);
  hold = std::move(region);
  return 0;
}

int map_queue_buffer(PciDevice& device, IovaAllocator& iovas, std::span<const DmaPiece> pieces,
                     std::uint64_t address, std::uint64_t length, QueueMemory& memory) {
  const std::uint64_t in_page = address & kQueuePageMask;
  if (length == 0 || length > kMaxQueuePage || (in_page & 63) != 0) return EINVAL;
  std::uint64_t page = kQueueMapPage;
  if (in_page == 0) page = std::max(page, std::bit_ceil(length));
  if (const int error = DmaRegion::map(device, iovas, pieces, address, length, page, in_page, true,
                                       memory.buffer)) {
    return error;
  }
  memory.log_page_size = static_cast<std::uint8_t>(std::countr_zero(page) - 12);
  memory.page_offset = static_cast<std::uint8_t>(in_page / (page / 64));
  memory.pages.clear();
  const std::uint64_t first = memory.buffer.iova() - in_page;
  for (std::uint64_t at = first; at < memory.buffer.iova() + length; at += page) {
    memory.pages.push_back(at);
  }
  return 0;
}

}  // namespace softhca::shim
