// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <algorithm>
#include <cerrno>
#include <thread>

#include <fcntl.h>
#include <sys/file.h>

#include "emulator/runtime/lock.h"

namespace softhca::runtime {
namespace {

Result<UniqueFd> open_lock_file(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (fd) return fd;
  Error error = system_error(errno, path);
  if (error.code == EISDIR || error.code == ELOOP || error.code == EACCES) {
    error.message +=
        ", where a lock file should be: remove it, or set SOFTHCA_RUNTIME_DIR to another folder";
  }
  return error;
}

}  // namespace

Result<FileLock> FileLock::try_acquire(const std::string& path) {
  auto fd = open_lock_file(path);
  if (!fd) return fd.error();
  while (::flock(fd->get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EINTR) return system_error(errno, path);
  }
  return FileLock(std::move(*fd));
}

Result<FileLock> FileLock::acquire(const std::string& path, std::chrono::milliseconds timeout) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  auto pause = std::chrono::milliseconds(1);
  while (true) {
    auto lock = try_acquire(path);
    if (lock || lock.error().code != EWOULDBLOCK) return lock;
    if (std::chrono::steady_clock::now() >= end) return lock;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(20));
  }
}

bool FileLock::is_held(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  return fd && ::flock(fd.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

}  // namespace softhca::runtime
