// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include <sys/mman.h>

#include "fake_device.h"
#include "kernel-shim/protocol/protocol.h"

namespace softhca::shim::test {

/// Ordinary memory that nobody has touched.
inline char* map_pages(std::size_t pages) {
  void* memory =
      ::mmap(nullptr, pages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  return static_cast<char*>(memory);
}

/// kFlagShared or kFlagUnshared; 0 on errors.
inline std::uint64_t share_in_use(const Device& device, const void* memory, std::size_t length) {
  ShareResult result;
  const int error = share(device.fd(), memory, length, result, nullptr, kShareInUse);
  return error == 0 ? result.flags : 0;
}

}  // namespace softhca::shim::test
