// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernel-shim/host/memory/dma_region.h"
#include "kernel-shim/host/memory/shared_file.h"

namespace softhca::shim {

/// The shared pages that a request brings along.
class CallMemory {
 public:
  /// `pieces` as the process tells them of the file `fd`; `map` is the process's. 0 or an errno.
  int open(SharedFiles& files, int fd, const std::shared_ptr<const ProcessMap>& map,
           std::vector<SharedPiece> pieces);

  /// The pages around [address, address + length), which must not wrap, and pins for them. Those
  /// that are not among the pieces are the process's memory `fallback`, by address; -1, false:
  /// there are such.
  bool find(std::uint64_t address, std::uint64_t length, int fallback, std::vector<DmaPiece>& pages,
            Pins& pins) const;

  const std::shared_ptr<SharedFile>& file() const { return file_; }

 private:
  std::shared_ptr<SharedFile> file_;
  std::vector<SharedPiece> pieces_;
};

}  // namespace softhca::shim
