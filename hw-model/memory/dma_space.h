// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <system_error>

namespace softhca {

/// Outcome of a device access to host memory. `pending`: the bytes cannot be had yet (no descriptor
/// for the map, on-demand page, bus mastering off); nothing the driver may look at was changed, the
/// caller parks its operation and repeats it from its start when the runner says that memory has
/// arrived.
enum class DmaStatus : std::uint8_t { ok, fault, pending };

enum class DmaAccess : std::uint8_t { read = 1, write = 2 };

/// Host memory that the device reaches by calls instead of by a pointer (descriptor without seal,
/// remote client). Offsets count from the start of the backing object.
class DmaBacking {
 public:
  virtual ~DmaBacking() = default;
  virtual DmaStatus read(std::uint64_t offset, void* to, std::size_t length) = 0;
  virtual DmaStatus write(std::uint64_t offset, const void* from, std::size_t length) = 0;
};

/// Copies so that the bytes of the last cache line of `to` become visible after all others, in
/// ascending order of 8-byte words and bytes: applications poll the last byte of a message
/// (DESIGN 4). The areas may overlap except in that line.
void copy_ordered_slow(std::byte* to, const std::byte* from, std::uint64_t length);
inline void copy_ordered(std::byte* to, const std::byte* from, std::uint64_t length) {
  if (length != 8 || reinterpret_cast<std::uintptr_t>(to) % 8 != 0) {
    copy_ordered_slow(to, from, length);
    return;
  }
  std::uint64_t word = 0;
  std::memcpy(&word, from, 8);
  __atomic_store_n(reinterpret_cast<std::uint64_t*>(to), word, __ATOMIC_RELEASE);
}

/// The device's view of host memory: what the driver (through its IOMMU) mapped for it. I/O virtual
/// addresses, in bytes. One space per Function; not thread-safe.
class DmaSpace {
 public:
  struct Range {
    std::uint64_t iova = 0;
    std::uint64_t size = 0;
    std::byte* base = nullptr;  ///< Direct mapping, or null when only `backing` reaches the memory.
    std::shared_ptr<DmaBacking> backing =
        nullptr;  ///< Also owns the mapping behind `base`, if any.
    std::uint64_t backing_offset = 0;
    bool readable = true;
    bool writable = true;
  };

  /// EINVAL: empty or wrapping range, or neither base nor backing; EEXIST: overlaps an existing
  /// one.
  std::errc map(Range range);
  /// Removes exactly [iova, iova + size) as mapped before (several whole ranges may be covered at
  /// once). ENOENT: nothing there; EINVAL: would split a range.
  std::errc unmap(std::uint64_t iova, std::uint64_t size);
  void clear();
  std::size_t range_count() const { return ranges_.size(); }
  /// Changes with every map, unmap and clear: whoever keeps a pointer of try_span() compares it
  /// before use.
  std::uint64_t generation() const { return generation_; }
  /// Hears, before it happens, that memory which was reachable goes away or may be reached no more:
  /// whoever keeps pointers beyond one step gives them up. Null: nobody.
  void on_revoke(std::function<void()> listener) { revoked_ = std::move(listener); }
  /// Tells the listener; unmap() and clear() do so themselves.
  void revoke() {
    if (revoked_) revoked_();
  }

  /// Bus mastering off: the function may make no request (PCI 3.0, 6.2.2). Every access is pending
  /// until it is on again; whoever turns it on tells the device that memory has arrived.
  void suspend(bool suspended);
  bool suspended() const { return suspended_; }

  /// Pointer to [iova, iova + length) when it lies in one directly mapped range that allows
  /// `access`, else null. Valid until the next map/unmap.
  std::byte* try_span(std::uint64_t iova, std::uint64_t length, DmaAccess access);

  /// Copies, across range borders where needed. `fault`: part of it is unmapped or not allowed;
  /// then nothing was copied.
  DmaStatus read(std::uint64_t iova, void* to, std::uint64_t length);
  DmaStatus write(std::uint64_t iova, const void* from, std::uint64_t length);

  /// Like write(), in the order of copy_ordered() where the memory is directly mapped.
  DmaStatus write_ordered(std::uint64_t iova, const void* from, std::uint64_t length);

  /// Stores one byte so that everything written before is visible to whoever sees it (release
  /// store).
  DmaStatus store_release(std::uint64_t iova, std::uint8_t value);

  /// Reads one aligned big-endian word that the driver stores concurrently (acquire load): doorbell
  /// records. An unaligned address faults.
  DmaStatus load_be32(std::uint64_t iova, std::uint32_t& value);
  /// Stores one (release store where the memory is directly mapped).
  DmaStatus store_be32(std::uint64_t iova, std::uint32_t value);

  /// `fault` if a part of [iova, iova + length) is unmapped or does not allow `access`; `pending`
  /// while suspended.
  DmaStatus check(std::uint64_t iova, std::uint64_t length, DmaAccess access);

 private:
  const Range* find(std::uint64_t iova);
  template <typename Copy>
  DmaStatus for_each_piece(std::uint64_t iova, std::uint64_t length, DmaAccess access, Copy&& copy);

  std::map<std::uint64_t, Range> ranges_;
  const Range* last_ = nullptr;
  std::function<void()> revoked_;
  std::uint64_t generation_ = 1;
  bool suspended_ = false;
};

}  // namespace softhca
