// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <chrono>
#include <string>

#include "emulator/runtime/result.h"
#include "emulator/runtime/unique_fd.h"

namespace softhca::runtime {

/// An exclusive flock on a file, held until destruction. The kernel drops it when the process dies,
/// so a lock is never stale. The file itself is left in place (removing it would let two holders
/// in).
class FileLock {
 public:
  /// EWOULDBLOCK: someone else holds it. The file is made with mode 0600 if missing.
  static Result<FileLock> try_acquire(const std::string& path);
  /// Waits up to `timeout` for the holder to go; EWOULDBLOCK if it does not.
  static Result<FileLock> acquire(const std::string& path, std::chrono::milliseconds timeout);
  /// True if somebody (possibly this process) holds the lock now.
  static bool is_held(const std::string& path);

 private:
  explicit FileLock(UniqueFd fd) : fd_(std::move(fd)) {}

  UniqueFd fd_;
};

}  // namespace softhca::runtime
