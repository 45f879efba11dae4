// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/preload/store_guard.h"

#include <cerrno>

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernel-shim/preload/errno_guard.h"
#include "kernel-shim/preload/thread_stop.h"

namespace softhca::shim::preload {
namespace {

bool control(int fd, unsigned long request, void* argument) {
  return ::syscall(SYS_ioctl, fd, request, argument) == 0;
}

/// A userfaultfd for faults of user and kernel, or -1. Without UFFD_USER_MODE_ONLY it takes the
/// privilege that this class looks for.
int open_userfaultfd() {
  const int fd = static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK));
  if (fd < 0) return -1;
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = UFFD_FEATURE_PAGEFAULT_FLAG_WP;
  if (control(fd, UFFDIO_API, &api)) return fd;
  ::syscall(SYS_close, fd);
  return -1;
}

uffdio_range range_of(std::uint64_t begin, std::uint64_t end) {
  return {begin, end - begin};
}

}  // namespace

StoreGuard::StoreGuard() : alone_(is_only_thread()) {
  const ErrnoGuard guard;
  if (!alone_) fault_fd_ = open_userfaultfd();
}

StoreGuard::~StoreGuard() {
  if (fault_fd_ < 0) return;
  const ErrnoGuard guard;
  ::syscall(SYS_close, fault_fd_);
}

bool StoreGuard::write_protect(std::uint64_t begin, std::uint64_t end) const {
  // Only pages that are there can be protected.
  constexpr int kPopulateRead = 22;  // MADV_POPULATE_READ
  if (::syscall(SYS_madvise, begin, end - begin, kPopulateRead) != 0) return false;
  uffdio_register registration{};
  registration.range = range_of(begin, end);
  registration.mode = UFFDIO_REGISTER_MODE_WP;
  if (!control(fault_fd_, UFFDIO_REGISTER, &registration)) return false;
  uffdio_writeprotect protection{};
  protection.range = range_of(begin, end);
  protection.mode = UFFDIO_WRITEPROTECT_MODE_WP;
  if (control(fault_fd_, UFFDIO_WRITEPROTECT, &protection)) return true;
  control(fault_fd_, UFFDIO_UNREGISTER, &registration.range);
  return false;
}

int StoreGuard::protect(std::uint64_t begin, std::uint64_t end) {
  if (alone_) return 0;
  const ErrnoGuard guard;
  if (fault_fd_ >= 0 && write_protect(begin, end)) return 0;
  stopped_ = stop_other_threads();
  return stopped_ ? 0 : EBUSY;
}

void StoreGuard::release(std::uint64_t begin, std::uint64_t end) {
  if (alone_) return;
  const ErrnoGuard guard;
  if (stopped_) {
    stopped_ = false;
    resume_other_threads();
    return;
  }
  // If the swap has failed, the old pages are still there and protected.
  uffdio_range range = range_of(begin, end);
  control(fault_fd_, UFFDIO_UNREGISTER, &range);
  control(fault_fd_, UFFDIO_WAKE, &range);
}

}  // namespace softhca::shim::preload
