// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/device-server/message_memory.h"

#include <algorithm>

namespace softhca::emulator {
namespace {

/// Answers kept before the expired ones among them are looked for.
constexpr std::size_t kManyReads = 1024;

/// Calls `access(offset, size)` for pieces of at most `limit` bytes. All of them are started even
/// if the first is pending, so that they travel together.
template <typename Access>
DmaStatus by_chunks(std::size_t length, std::uint64_t limit, Access&& access) {
  bool pending = false;
  for (std::size_t offset = 0; offset < length;) {
    const std::size_t size = std::min<std::uint64_t>(length - offset, limit);
    const DmaStatus status = access(offset, size);
    if (status == DmaStatus::fault) return status;
    pending |= status == DmaStatus::pending;
    offset += size;
  }
  return pending ? DmaStatus::pending : DmaStatus::ok;
}

}  // namespace

DmaStatus MessageMemory::read(std::uint64_t iova, void* to, std::size_t length) {
  auto* bytes = static_cast<std::byte*>(to);
  return by_chunks(length, server_.max_dma_transfer(), [&](std::size_t offset, std::size_t size) {
    return read_chunk({iova + offset, size}, {bytes + offset, size});
  });
}

DmaStatus MessageMemory::write(std::uint64_t iova, const void* from, std::size_t length) {
  const auto* bytes = static_cast<const std::byte*>(from);
  return by_chunks(length, server_.max_dma_transfer(), [&](std::size_t offset, std::size_t size) {
    return write_chunk({iova + offset, size}, {bytes + offset, size});
  });
}

DmaStatus MessageMemory::refused(std::errc error) {
  if (error != std::errc::no_buffer_space) return DmaStatus::fault;
  refused_ = true;
  return DmaStatus::pending;
}

DmaStatus MessageMemory::read_chunk(Range range, std::span<std::byte> to) {
  if (const auto known = reads_.find(range); known != reads_.end()) {
    const Read& read = known->second;
    if (!read.done) return DmaStatus::pending;
    if (clock_.now() - read.arrived <= kLifetime) {
      if (read.error != std::errc{}) return DmaStatus::fault;
      std::ranges::copy(read.bytes, to.begin());
      return DmaStatus::ok;
    }
    reads_.erase(known);
  }
  const auto error = server_.dma_read(
      range.iova, range.length,
      [self = weak_from_this(), range](std::errc result, std::span<const std::byte> data) {
        if (const auto memory = self.lock()) memory->finish_read(range, result, data);
      });
  if (error != std::errc{}) return refused(error);
  ++reads_in_flight_;
  reads_[range] = {};
  return DmaStatus::pending;
}

void MessageMemory::finish_read(Range range, std::errc error, std::span<const std::byte> data) {
  --reads_in_flight_;
  const auto found = reads_.find(range);
  if (found->second.stale) {
    reads_.erase(found);
  } else {
    Read& read = found->second;
    read.done = true;
    read.error = error;
    read.bytes.assign(data.begin(), data.end());
    read.arrived = clock_.now();
  }
  if (reads_.size() > kManyReads) {
    std::erase_if(reads_, [now = clock_.now()](const auto& entry) {
      return entry.second.done && now - entry.second.arrived > kLifetime;
    });
  }
  progress_();
}

DmaStatus MessageMemory::write_chunk(Range range, std::span<const std::byte> from) {
  const std::uint64_t number = last_write_ + 1;
  const auto error = server_.dma_write(
      range.iova, from, [self = weak_from_this(), number](std::errc, std::span<const std::byte>) {
        if (const auto memory = self.lock()) memory->finish_write(number);
      });
  if (error != std::errc{}) return refused(error);
  last_write_ = number;
  unacknowledged_.insert(unacknowledged_.end(), number);
  end_reads([&](const Range& other) { return other.overlaps(range); });
  return DmaStatus::ok;
}

void MessageMemory::finish_write(std::uint64_t number) {
  unacknowledged_.erase(number);
  progress_();
}

template <typename Gone>
void MessageMemory::end_reads(Gone&& gone) {
  for (auto at = reads_.begin(); at != reads_.end();) {
    if (!gone(at->first)) {
      ++at;
    } else if (at->second.done) {
      at = reads_.erase(at);
    } else {
      at->second.stale = true;
      ++at;
    }
  }
}

void MessageMemory::invalidate_reads() {
  end_reads([](const Range&) { return true; });
}

void MessageMemory::settle() {
  if (reads_in_flight_ == 0) reads_.clear();
}

void MessageMemory::retry_refused() {
  if (std::exchange(refused_, false)) progress_();
}

}  // namespace softhca::emulator
