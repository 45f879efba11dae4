// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>

#include "emulator/runtime/unique_fd.h"
#include "kernel-shim/host/memory/dma_region.h"

namespace softhca::shim {

/// A context's page of state records (hw-model/runtime/mkey_state.h): the process has it, and the
/// device. Here it is only read, to know by which name a key goes.
class MkeyStateMemory {
 public:
  /// 0 or an errno.
  int make(PciDevice& device, IovaAllocator& iovas);
  explicit operator bool() const { return static_cast<bool>(region_); }
  int fd() const { return fd_.get(); }
  /// Where the device finds record `number`, from 1 on; 0: there is no such one.
  std::uint64_t iova(std::uint32_t number) const;
  /// What the process wants of the key with that record, whatever it is; kMkeyAsCreated: there is
  /// no such record.
  std::uint32_t wanted(std::uint32_t number) const;

 private:
  runtime::UniqueFd fd_;
  DmaRegion region_;
};

}  // namespace softhca::shim
