// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "kernel-shim/preload/errno_guard.h"

/// Which paths belong to the virtual host, and where they lie: `$SOFTHCA_HOST_DIR` holds sys/ and
/// dev/, written by the host's daemon.
namespace softhca::shim::preload {

/// Longest path that is redirected, with its terminating zero.
inline constexpr std::size_t kMaxPath = 4096;

/// `$SOFTHCA_HOST_DIR` as it was when first asked for, or null: then this library does nothing.
const char* host_folder();

enum class PathOwner : std::uint8_t {
  real,      ///< The machine's own.
  fallback,  ///< Below /sys: the virtual host's if the machine has none of that name.
  virtual_host,
};
/// Never reads beyond the first byte that decides.
PathOwner owner_of(const char* path);

/// Writes the path inside the host's folder; false if it would not fit.
bool map_path(const char* path, char (&mapped)[kMaxPath]);

/// If `path` begins with the host's folder: the machine's name for it (a pointer into `path`),
/// else `path`.
const char* unmapped(const char* path);

/// N if `path` is /dev/infiniband/uverbsN, else -1.
int device_index(const char* path);

/// Device number of a device file below /dev/infiniband, as sysfs tells it; 0 if it does not.
std::uint64_t device_number(const char* device_file);

inline bool has_failed(int result) {
  return result < 0;
}
inline bool has_failed(long result) {
  return result < 0;
}
inline bool has_failed(const void* result) {
  return result == nullptr;
}

/// Calls `call(path)` with the path to use. `call` returns an int or long (negative: failed, see
/// errno) or a pointer (null: failed).
template <typename Call>
auto redirect(const char* path, Call call) -> decltype(call(path)) {
  const PathOwner owner = owner_of(path);
  if (owner == PathOwner::real) return call(path);
  if (owner == PathOwner::fallback) {
    const int before = errno;
    auto result = call(path);
    if (!has_failed(result) || errno != ENOENT) return result;
    errno = before;
  }
  char mapped[kMaxPath];
  if (!map_path(path, mapped)) return call(path);
  return call(mapped);
}

}  // namespace softhca::shim::preload
