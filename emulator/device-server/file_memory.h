// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "emulator/device-server/shared_memory.h"
#include "emulator/vfio-user/server.h"
#include "hw-model/memory/dma_space.h"

namespace softhca::emulator {

/// Client memory behind a descriptor that is read and written by system calls: /proc/PID/mem, files
/// that could shrink under a mapping. One object per open file description, however often it was
/// sent.
class FileMemory final : public DmaBacking {
 public:
  /// `at_end`: outcome of an access behind the end of the file.
  FileMemory(vfio_user::FileDescriptor fd, DmaStatus at_end)
      : fd_(std::move(fd)), at_end_(at_end) {}

  DmaStatus read(std::uint64_t offset, void* to, std::size_t length) override;
  DmaStatus write(std::uint64_t offset, const void* from, std::size_t length) override;
  int fd() const { return fd_.get(); }

 private:
  vfio_user::FileDescriptor fd_;
  DmaStatus at_end_;
};

/// Keeps a mapping alive for as long as a range refers to it.
class MappedMemory final : public DmaBacking {
 public:
  /// `start`: offset in the file of the mapping's first byte.
  MappedMemory(Mapping mapping, std::uint64_t start)
      : mapping_(std::move(mapping)), start_(start) {}

  // The range's base pointer serves every access; these are for callers that hold the backing
  // alone.
  DmaStatus read(std::uint64_t offset, void* to, std::size_t length) override;
  DmaStatus write(std::uint64_t offset, const void* from, std::size_t length) override;

  /// Pointer to [offset, offset + length) of the file; null if the mapping does not hold it.
  std::byte* at(std::uint64_t offset, std::size_t length) const {
    const bool inside = offset >= start_ && offset - start_ <= mapping_.size() &&
                        length <= mapping_.size() - (offset - start_);
    return inside ? mapping_.base() + (offset - start_) : nullptr;
  }

 private:
  Mapping mapping_;
  std::uint64_t start_;
};

/// Turns DMA_MAP requests with a descriptor into ranges of a DmaSpace.
class FileMemoryTable {
 public:
  /// A memfd that is sealed against shrinking and long enough is mapped, one of fixed size (a
  /// guest's memory) as a whole and once: behind a virtual IOMMU every page is a map of its own,
  /// for which the kernel has neither enough mappings nor should it be asked each time. Any other
  /// regular file is reached by FileMemory, whose failures are DMA faults. EINVAL: not a regular
  /// file; ENOTSUP: its accesses could block or kill the emulator (FUSE, huge pages).
  std::errc open(vfio_user::DmaMapRequest request, DmaSpace::Range& range);
  /// Page tables of new maps are filled at once for so many bytes between two calls of
  /// renew_budget(); those of others as the device touches them.
  static constexpr std::uint64_t kPopulatedBetween = std::uint64_t{16} << 20;
  void renew_budget() { populatable_ = kPopulatedBetween; }
  /// Distinct descriptors held.
  std::size_t open_files() const;

 private:
  using FileId = std::pair<std::uint64_t, std::uint64_t>;  // device, inode
  std::shared_ptr<FileMemory> share(FileId id, vfio_user::FileDescriptor fd, DmaStatus at_end);

  bool use_window(const FileId& id, const vfio_user::DmaMapRequest& request,
                  DmaSpace::Range& range);

  void populate(std::byte* base, std::size_t length);

  std::uint64_t populatable_ = kPopulatedBetween;
  std::map<FileId, std::vector<std::weak_ptr<FileMemory>>> files_;
  std::map<FileId, std::weak_ptr<MappedMemory>> windows_;
};

}  // namespace softhca::emulator
