// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/host/memory/mkey_state_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <utility>

#include "hw-model/runtime/mkey_state.h"

namespace softhca::shim {

int MkeyStateMemory::make(PciDevice& device, IovaAllocator& iovas) {
  constexpr std::uint64_t kSize = MkeyStatePage::kAlignment;
  runtime::UniqueFd fd(::memfd_create("softhca-mkey-states", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd || ::ftruncate(fd.get(), kSize) != 0 ||
      ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    return errno;
  }
  const DmaPiece piece{fd.get(), 0, kSize};
  DmaRegion region;
  if (const int error =
          DmaRegion::map(device, iovas, std::span(&piece, 1), 0, kSize, kSize, 0, true, region)) {
    return error;
  }
  fd_ = std::move(fd);
  region_ = std::move(region);
  return 0;
}

std::uint64_t MkeyStateMemory::iova(std::uint32_t number) const {
  if (!region_ || number == 0 || number > MkeyStatePage::kRecords) return 0;
  return region_.iova() + offsetof(MkeyStatePage, records) + (number - 1) * sizeof(MkeyStateRecord);
}

std::uint32_t MkeyStateMemory::wanted(std::uint32_t number) const {
  if (!region_ || number == 0 || number > MkeyStatePage::kRecords) return kMkeyAsCreated;
  const std::size_t offset = offsetof(MkeyStatePage, records) +
                             (number - 1) * sizeof(MkeyStateRecord) +
                             offsetof(MkeyStateRecord, wanted);
  std::uint32_t word = 0;
  if (::pread(fd_.get(), &word, sizeof word, static_cast<off_t>(offset)) != sizeof word) {
    return kMkeyAsCreated;
  }
  return __builtin_bswap32(word);
}

}  // namespace softhca::shim
