// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/queues/queue_buffer.h"

#include <algorithm>
#include <cstring>

namespace softhca {

QueueBuffer::QueueBuffer(DmaSpace& dma, std::span<const std::uint64_t> pages,
                         std::uint8_t log_page_bytes, std::uint64_t offset)
    : dma_(&dma), pages_(pages, log_page_bytes), offset_(std::min(offset, pages_.size())) {
  size_ = pages_.size() - offset_;
}

namespace {

/// A queue of more pages, 4 MiB, that is not one piece is reached page by page through the
/// DmaSpace.
constexpr std::uint64_t kMostPages = 1024;

}  // namespace

/// [at, at + length) of the pages, if that is directly mapped.
std::byte* QueueBuffer::find(std::uint64_t at, std::uint64_t length) {
  std::uint64_t run = length;
  const std::uint64_t iova = pages_.translate(at, run);
  if (run < length || dma_->try_span(iova, length, DmaAccess::read) == nullptr) return nullptr;
  return dma_->try_span(iova, length, DmaAccess::write);
}

void QueueBuffer::look_up() {
  cached_generation_ = dma_->generation();
  cached_ = size_ == 0 ? nullptr : find(offset_, size_);
  cached_pages_.clear();
  // The size is what the driver says: it must not be a way to take the runner's memory.
  const std::uint64_t pages = pages_.size() >> kLogPage;
  if (cached_ == nullptr && pages <= kMostPages) cached_pages_.resize(pages);
}

std::byte* QueueBuffer::in_one_page(std::uint64_t at, std::uint64_t length) {
  constexpr std::uint64_t kPageSize = std::uint64_t{1} << kLogPage;
  const std::uint64_t in_page = at & (kPageSize - 1);
  if (length > kPageSize - in_page || at >> kLogPage >= cached_pages_.size()) return nullptr;
  Page& page = cached_pages_[at >> kLogPage];
  if (!page.known) page = {find(at - in_page, kPageSize), true};
  return page.base == nullptr ? nullptr : page.base + in_page;
}

DmaStatus QueueBuffer::read(std::uint64_t offset, void* to, std::uint64_t length) {
  if (length == 0) return DmaStatus::ok;
  if (const std::byte* from = direct(offset, length)) {
    std::memcpy(to, from, length);
    return DmaStatus::ok;
  }
  if (offset > size_ || length > size_ - offset) return DmaStatus::fault;
  for (std::uint64_t done = 0; done < length;) {
    std::uint64_t run = length - done;
    const std::uint64_t iova = pages_.translate(offset_ + offset + done, run);
    const DmaStatus status = dma_->read(iova, static_cast<std::byte*>(to) + done, run);
    if (status != DmaStatus::ok) return status;
    done += run;
  }
  return DmaStatus::ok;
}

DmaStatus QueueBuffer::write(std::uint64_t offset, const void* from, std::uint64_t length) {
  if (length == 0) return DmaStatus::ok;
  if (std::byte* to = direct(offset, length)) {
    std::memcpy(to, from, length);
    return DmaStatus::ok;
  }
  if (offset > size_ || length > size_ - offset) return DmaStatus::fault;
  for (std::uint64_t done = 0; done < length;) {
    std::uint64_t run = length - done;
    const std::uint64_t iova = pages_.translate(offset_ + offset + done, run);
    const DmaStatus status = dma_->write(iova, static_cast<const std::byte*>(from) + done, run);
    if (status != DmaStatus::ok) return status;
    done += run;
  }
  return DmaStatus::ok;
}

DmaStatus QueueBuffer::store_release(std::uint64_t offset, std::uint8_t value) {
  if (std::byte* to = direct(offset, 1)) {
    __atomic_store_n(reinterpret_cast<std::uint8_t*>(to), value, __ATOMIC_RELEASE);
    return DmaStatus::ok;
  }
  if (offset >= size_) return DmaStatus::fault;
  std::uint64_t run = 1;
  return dma_->store_release(pages_.translate(offset_ + offset, run), value);
}

DmaStatus QueueBuffer::read_ring(std::uint64_t ring_start, std::uint64_t ring_size,
                                 std::uint64_t position, void* to, std::uint64_t length) {
  const std::uint64_t head = std::min(length, ring_size - position);
  const DmaStatus status = read(ring_start + position, to, head);
  if (status != DmaStatus::ok || head == length) return status;
  return read(ring_start, static_cast<std::byte*>(to) + head, length - head);
}

}  // namespace softhca
