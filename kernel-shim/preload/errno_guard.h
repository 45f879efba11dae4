// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cerrno>

namespace softhca::shim::preload {

/// Restores errno at the end of a scope: what a wrapper does on the side must not show.
class ErrnoGuard {
 public:
  ErrnoGuard() : saved_(errno) {}
  ErrnoGuard(const ErrnoGuard&) = delete;
  ErrnoGuard& operator=(const ErrnoGuard&) = delete;
  ~ErrnoGuard() { errno = saved_; }

 private:
  int saved_;
};

/// Sets errno and returns -1, as system call wrappers do.
inline int fail(int error) {
  errno = error;
  return -1;
}

}  // namespace softhca::shim::preload
