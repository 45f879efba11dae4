// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/device-server/message_memory.h"

#include <algorithm>

namespace softhca::emulator {
namespace {

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
    const Access& access = known->second;
    if (!access.done) return DmaStatus::pending;
    if (access.error != std::errc{}) return DmaStatus::fault;
    std::ranges::copy(access.bytes, to.begin());
    return DmaStatus::ok;
  }
  const auto error = server_.dma_read(
      range.iova, range.length,
      [self = weak_from_this(), range](std::errc result, std::span<const std::byte> data) {
        if (const auto memory = self.lock()) memory->finish(memory->reads_, range, result, data);
      });
  if (error != std::errc{}) return refused(error);
  ++in_flight_;
  reads_[range] = {};
  return DmaStatus::pending;
}

DmaStatus MessageMemory::write_chunk(Range range, std::span<const std::byte> from) {
  const auto known = writes_.find(range);
  if (known != writes_.end()) {
    Access& access = known->second;
    if (!access.done) return DmaStatus::pending;
    if (std::ranges::equal(access.bytes, from)) {
      return access.error == std::errc{} ? DmaStatus::ok : DmaStatus::fault;
    }
  }
  const auto error = server_.dma_write(
      range.iova, from,
      [self = weak_from_this(), range](std::errc result, std::span<const std::byte>) {
        if (const auto memory = self.lock()) memory->finish(memory->writes_, range, result, {});
      });
  if (error != std::errc{}) return refused(error);
  forget_overlapping(range);
  ++in_flight_;
  writes_[range] = {false, false, {}, {from.begin(), from.end()}};
  return DmaStatus::pending;
}

void MessageMemory::finish(Accesses& accesses, Range range, std::errc error,
                           std::span<const std::byte> data) {
  --in_flight_;
  if (const auto found = accesses.find(range); found != accesses.end()) {
    Access& access = found->second;
    if (access.stale) {
      accesses.erase(found);
    } else {
      access.done = true;
      access.error = error;
      if (&accesses == &reads_) access.bytes.assign(data.begin(), data.end());
    }
  }
  arrived_();
}

void MessageMemory::forget_overlapping(Range range) {
  for (Accesses* accesses : {&reads_, &writes_}) {
    for (auto at = accesses->begin(); at != accesses->end();) {
      if (!at->first.overlaps(range)) {
        ++at;
      } else if (at->second.done) {
        at = accesses->erase(at);
      } else {
        at->second.stale = true;
        ++at;
      }
    }
  }
}

void MessageMemory::invalidate_reads() {
  for (auto at = reads_.begin(); at != reads_.end();) {
    if (at->second.done) {
      at = reads_.erase(at);
    } else {
      at->second.stale = true;
      ++at;
    }
  }
}

void MessageMemory::settle() {
  if (in_flight_ != 0) return;
  reads_.clear();
  writes_.clear();
}

void MessageMemory::retry_refused() {
  if (std::exchange(refused_, false)) arrived_();
}

}  // namespace softhca::emulator
