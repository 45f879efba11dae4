// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/host/uverbs/clock_info.h"

#include <fcntl.h>
#include <rdma/mlx5-abi.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

namespace softhca::shim {
namespace {

constexpr off_t kClockPage = 4096;
/// Timestamps have 63 bits (timestamp_mask of the device attributes).
constexpr std::uint64_t kMask = 0x7fffffffffffffffULL;

}  // namespace

runtime::UniqueFd make_clock_info() {
  mlx5_ib_clock_info info{};
  info.mult = 1;
  info.shift = 0;
  info.mask = kMask;
  info.overflow_period = kMask;  // Never to be refreshed.
  const runtime::UniqueFd file(
      ::memfd_create("softhca-clock-info", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file || ::ftruncate(file.get(), kClockPage) != 0 ||
      ::pwrite(file.get(), &info, sizeof(info), 0) != sizeof(info) ||
      ::fcntl(file.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) !=
          0) {
    return {};
  }
  // A descriptor with write access to a file sealed against writing cannot be mapped shared.
  const std::string path = "/proc/self/fd/" + std::to_string(file.get());
  return runtime::UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
}

}  // namespace softhca::shim
