// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/memory/dma_space.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

namespace softhca {
namespace {

constexpr std::uint64_t kCacheLine = 64;

bool permits(const DmaSpace::Range& range, DmaAccess access) {
  return access == DmaAccess::read ? range.readable : range.writable;
}

void store_byte(std::byte* to, std::uint8_t value) {
  __atomic_store_n(reinterpret_cast<std::uint8_t*>(to), value, __ATOMIC_RELEASE);
}

/// Copies so that a reader who sees byte n of `to` also sees all bytes before it.
void copy_ascending(std::byte* to, const std::byte* from, std::uint64_t length) {
  std::uint64_t i = 0;
  for (; i < length && reinterpret_cast<std::uintptr_t>(to + i) % 8 != 0; ++i) {
    store_byte(to + i, static_cast<std::uint8_t>(from[i]));
  }
  for (; i + 8 <= length; i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, from + i, 8);
    __atomic_store_n(reinterpret_cast<std::uint64_t*>(to + i), word, __ATOMIC_RELEASE);
  }
  for (; i < length; ++i) store_byte(to + i, static_cast<std::uint8_t>(from[i]));
}

}  // namespace

void copy_ordered_slow(std::byte* to, const std::byte* from, std::uint64_t length) {
  if (length == 0) return;
  const auto last = reinterpret_cast<std::uintptr_t>(to) + length - 1;
  const std::uint64_t tail = std::min(length, last % kCacheLine + 1);
  if (tail < length) std::memmove(to, from, length - tail);
  copy_ascending(to + (length - tail), from + (length - tail), tail);
}

std::errc DmaSpace::map(Range range) {
  const bool reachable = range.base != nullptr || range.backing != nullptr;
  // The last byte must have an address; a range up to 2^64 would wrap its end.
  if (range.size == 0 || !reachable || range.iova + range.size < range.iova) {
    return std::errc::invalid_argument;
  }
  const auto next = ranges_.lower_bound(range.iova);
  if (next != ranges_.end() && next->first < range.iova + range.size) return std::errc::file_exists;
  if (next != ranges_.begin()) {
    const Range& previous = std::prev(next)->second;
    if (previous.iova + previous.size > range.iova) return std::errc::file_exists;
  }
  ranges_.emplace_hint(next, range.iova, std::move(range));
  ++generation_;
  return std::errc{};
}

std::errc DmaSpace::unmap(std::uint64_t iova, std::uint64_t size) {
  if (size == 0 || iova + size < iova) return std::errc::invalid_argument;
  const std::uint64_t end = iova + size;
  const auto first = ranges_.lower_bound(iova);
  if (first != ranges_.begin()) {
    const Range& previous = std::prev(first)->second;
    if (previous.iova + previous.size > iova) return std::errc::invalid_argument;
  }
  auto last = first;
  for (; last != ranges_.end() && last->first < end; ++last) {
    if (last->second.size > end - last->first) return std::errc::invalid_argument;
  }
  if (first == last) return std::errc::no_such_file_or_directory;
  revoke();
  ranges_.erase(first, last);
  last_ = nullptr;
  ++generation_;
  return std::errc{};
}

void DmaSpace::clear() {
  revoke();
  ranges_.clear();
  last_ = nullptr;
  ++generation_;
}

void DmaSpace::suspend(bool suspended) {
  if (suspended == suspended_) return;
  if (suspended) revoke();
  suspended_ = suspended;
  ++generation_;
}

const DmaSpace::Range* DmaSpace::find(std::uint64_t iova) {
  if (last_ != nullptr && iova - last_->iova < last_->size) return last_;
  auto after = ranges_.upper_bound(iova);
  if (after == ranges_.begin()) return nullptr;
  const Range& range = std::prev(after)->second;
  if (iova - range.iova >= range.size) return nullptr;
  last_ = &range;
  return last_;
}

std::byte* DmaSpace::try_span(std::uint64_t iova, std::uint64_t length, DmaAccess access) {
  if (suspended_) return nullptr;
  const Range* range = find(iova);
  if (range == nullptr || range->base == nullptr || !permits(*range, access)) return nullptr;
  const std::uint64_t offset = iova - range->iova;
  return length <= range->size - offset ? range->base + offset : nullptr;
}

DmaStatus DmaSpace::check(std::uint64_t iova, std::uint64_t length, DmaAccess access) {
  if (suspended_) return DmaStatus::pending;
  while (length > 0) {
    const Range* range = find(iova);
    if (range == nullptr || !permits(*range, access)) return DmaStatus::fault;
    const std::uint64_t piece = std::min(length, range->size - (iova - range->iova));
    iova += piece;
    length -= piece;
    if (iova == 0 && length > 0) return DmaStatus::fault;
  }
  return DmaStatus::ok;
}

/// copy(range, offset in range, offset in buffer, length) for each range touched.
template <typename Copy>
DmaStatus DmaSpace::for_each_piece(std::uint64_t iova, std::uint64_t length, DmaAccess access,
                                   Copy&& copy) {
  if (length == 0) return DmaStatus::ok;
  if (suspended_) return DmaStatus::pending;
  const Range* range = find(iova);
  if (range == nullptr || !permits(*range, access)) return DmaStatus::fault;
  if (length > range->size - (iova - range->iova)) {
    // A fault at the end must leave the beginning alone.
    if (check(iova, length, access) != DmaStatus::ok) return DmaStatus::fault;
  }
  for (std::uint64_t done = 0; done < length;) {
    range = find(iova + done);
    const std::uint64_t offset = iova + done - range->iova;
    const std::uint64_t piece = std::min(length - done, range->size - offset);
    const DmaStatus status = copy(*range, offset, done, piece);
    if (status != DmaStatus::ok) return status;
    done += piece;
  }
  return DmaStatus::ok;
}

DmaStatus DmaSpace::read(std::uint64_t iova, void* to, std::uint64_t length) {
  return for_each_piece(
      iova, length, DmaAccess::read,
      [to](const Range& range, std::uint64_t offset, std::uint64_t done, std::uint64_t piece) {
        auto* target = static_cast<std::byte*>(to) + done;
        if (range.base == nullptr) {
          return range.backing->read(range.backing_offset + offset, target, piece);
        }
        std::memcpy(target, range.base + offset, piece);
        return DmaStatus::ok;
      });
}

DmaStatus DmaSpace::write(std::uint64_t iova, const void* from, std::uint64_t length) {
  return for_each_piece(
      iova, length, DmaAccess::write,
      [from](const Range& range, std::uint64_t offset, std::uint64_t done, std::uint64_t piece) {
        const auto* source = static_cast<const std::byte*>(from) + done;
        if (range.base == nullptr) {
          return range.backing->write(range.backing_offset + offset, source, piece);
        }
        // The source may be registered memory itself, and overlap.
        std::memmove(range.base + offset, source, piece);
        return DmaStatus::ok;
      });
}

DmaStatus DmaSpace::write_ordered(std::uint64_t iova, const void* from, std::uint64_t length) {
  if (length == 0) return DmaStatus::ok;
  const auto* bytes = static_cast<const std::byte*>(from);
  if (std::byte* direct = try_span(iova, length, DmaAccess::write)) {
    copy_ordered(direct, bytes, length);
    return DmaStatus::ok;
  }
  const std::uint64_t tail = std::min(length, (iova + length - 1) % kCacheLine + 1);
  DmaStatus status = check(iova, length, DmaAccess::write);
  if (status != DmaStatus::ok) return status;
  status = write(iova, bytes, length - tail);
  return status == DmaStatus::ok ? write(iova + length - tail, bytes + (length - tail), tail)
                                 : status;
}

DmaStatus DmaSpace::store_release(std::uint64_t iova, std::uint8_t value) {
  if (std::byte* direct = try_span(iova, 1, DmaAccess::write)) {
    store_byte(direct, value);
    return DmaStatus::ok;
  }
  return write(iova, &value, 1);
}

DmaStatus DmaSpace::load_be32(std::uint64_t iova, std::uint32_t& value) {
  if (iova % 4 != 0) return DmaStatus::fault;
  std::uint32_t word = 0;
  const std::byte* direct = try_span(iova, 4, DmaAccess::read);
  if (direct != nullptr && reinterpret_cast<std::uintptr_t>(direct) % 4 == 0) {
    word = __atomic_load_n(reinterpret_cast<const std::uint32_t*>(direct), __ATOMIC_ACQUIRE);
  } else {
    const DmaStatus status = read(iova, &word, 4);
    if (status != DmaStatus::ok) return status;
  }
  value = __builtin_bswap32(word);
  return DmaStatus::ok;
}

DmaStatus DmaSpace::store_be32(std::uint64_t iova, std::uint32_t value) {
  if (iova % 4 != 0) return DmaStatus::fault;
  const std::uint32_t word = __builtin_bswap32(value);
  std::byte* direct = try_span(iova, 4, DmaAccess::write);
  if (direct == nullptr || reinterpret_cast<std::uintptr_t>(direct) % 4 != 0) {
    return write(iova, &word, 4);
  }
  __atomic_store_n(reinterpret_cast<std::uint32_t*>(direct), word, __ATOMIC_RELEASE);
  return DmaStatus::ok;
}

}  // namespace softhca
