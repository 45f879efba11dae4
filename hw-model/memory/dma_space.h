// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <system_error>

namespace softhca {

/// Outcome of a device access to host memory. `pending`: the bytes are not here yet (no descriptor for the
/// map, on-demand page); nothing was changed, the caller parks its operation and repeats it from its start
/// when the runner says that memory has arrived.
enum class DmaStatus : std::uint8_t { ok, fault, pending };

enum class DmaAccess : std::uint8_t { read = 1, write = 2 };

/// Host memory that the device reaches by calls instead of by a pointer (descriptor without seal, remote
/// client). Offsets count from the start of the backing object.
class DmaBacking {
 public:
  virtual ~DmaBacking() = default;
  virtual DmaStatus read(std::uint64_t offset, void* to, std::size_t length) = 0;
  virtual DmaStatus write(std::uint64_t offset, const void* from, std::size_t length) = 0;
};

/// The device's view of host memory: what the driver (through its IOMMU) mapped for it. I/O virtual
/// addresses, in bytes. One space per Function; not thread-safe.
class DmaSpace {
 public:
  struct Range {
    std::uint64_t iova = 0;
    std::uint64_t size = 0;
    std::byte* base = nullptr;  ///< Direct mapping, or null when only `backing` reaches the memory.
    std::shared_ptr<DmaBacking> backing;  ///< Also owns the mapping behind `base`, if any.
    std::uint64_t backing_offset = 0;
    bool readable = true;
    bool writable = true;
  };

  /// EINVAL: empty or wrapping range; EEXIST: overlaps an existing one.
  std::errc map(Range range);
  /// Removes exactly [iova, iova + size) as mapped before (several whole ranges may be covered at once).
  /// ENOENT: nothing there; EINVAL: would split a range.
  std::errc unmap(std::uint64_t iova, std::uint64_t size);
  void clear();
  std::size_t range_count() const { return ranges_.size(); }

  /// Pointer to [iova, iova + length) when it lies in one directly mapped range that allows `access`, else
  /// null. Valid until the next map/unmap.
  std::byte* try_span(std::uint64_t iova, std::uint64_t length, DmaAccess access);

  /// Copies, across range borders where needed. `fault`: part of it is unmapped or not allowed.
  DmaStatus read(std::uint64_t iova, void* to, std::uint64_t length);
  DmaStatus write(std::uint64_t iova, const void* from, std::uint64_t length);

 private:
  const Range* find(std::uint64_t iova);

  std::map<std::uint64_t, Range> ranges_;
  const Range* last_ = nullptr;
};

}  // namespace softhca
