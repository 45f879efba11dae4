// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

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

/// Turns DMA_MAP requests with a descriptor into ranges of a DmaSpace.
class FileMemoryTable {
 public:
  /// A memfd that is sealed against shrinking and long enough is mapped; any other regular file is
  /// reached by FileMemory, whose failures are DMA faults. EINVAL: not a regular file; ENOTSUP: its
  /// accesses could block or kill the emulator (FUSE, huge pages).
  std::errc open(vfio_user::DmaMapRequest request, DmaSpace::Range& range);
  /// Distinct descriptors held.
  std::size_t open_files() const;

 private:
  using FileId = std::pair<std::uint64_t, std::uint64_t>;  // device, inode
  std::shared_ptr<FileMemory> share(FileId id, vfio_user::FileDescriptor fd, DmaStatus at_end);

  std::map<FileId, std::vector<std::weak_ptr<FileMemory>>> files_;
};

}  // namespace softhca::emulator
