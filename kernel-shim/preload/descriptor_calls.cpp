// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause

/// ioctl(), write() and mmap() on command descriptors; close() and its relatives on our own
/// descriptors; socket() for the protocol through which libibverbs would ask the real kernel.

#include <cerrno>
#include <climits>
#include <cstdarg>

#include <fcntl.h>
#include <linux/netlink.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernel-shim/preload/command_fd.h"
#include "kernel-shim/preload/commands.h"
#include "kernel-shim/preload/errno_guard.h"
#include "kernel-shim/preload/guarded_fds.h"
#include "kernel-shim/preload/host_tree.h"
#include "kernel-shim/preload/interpose.h"
#include "kernel-shim/preload/ioctl_layout.h"
#include "kernel-shim/preload/next.h"
#include "kernel-shim/preload/parked_regions.h"

namespace softhca::shim::preload {
namespace {

/// mmap() on a socket fails with ENODEV, so that everything else costs nothing.
void* map(void* address, std::size_t length, int protection, int flags, int fd, off_t offset) {
  const int before = errno;
  void* mapped = next::mmap(address, length, protection, flags, fd, offset);
  if ((flags & MAP_FIXED) != 0 && mapped != MAP_FAILED) {
    const auto begin = reinterpret_cast<std::uint64_t>(address);
    end_parked_in(begin, begin + length);
  }
  if (mapped != MAP_FAILED || errno != ENODEV || (flags & MAP_ANONYMOUS) != 0 ||
      !is_command_fd(fd)) {
    return mapped;
  }
  errno = before;
  return command_mmap(fd, address, length, protection, flags, offset);
}

int close_all(unsigned first, unsigned last, int flags) {
  while (first <= last) {
    const int guarded = first <= INT_MAX ? next_guarded(static_cast<int>(first)) : -1;
    const bool split = guarded >= 0 && static_cast<unsigned>(guarded) <= last;
    if (!split) return static_cast<int>(::syscall(SYS_close_range, first, last, flags));
    const auto number = static_cast<unsigned>(guarded);
    if (number > first && ::syscall(SYS_close_range, first, number - 1, flags) != 0) return -1;
    first = number + 1;
  }
  return 0;
}

}  // namespace

SOFTHCA_INTERPOSE(int, ioctl, int fd, unsigned long request, ...) {
  va_list arguments;
  va_start(arguments, request);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  if (_IOC_TYPE(request) == kRdmaIoctlType && is_command_fd(fd)) {
    return command_ioctl(fd, request, argument);
  }
  return next::ioctl(fd, request, argument);
}

SOFTHCA_INTERPOSE(ssize_t, write, int fd, const void* data, std::size_t length) {
  if (is_known_command_fd(fd)) return command_write(fd, data, length);
  return next::write(fd, data, length);
}

SOFTHCA_INTERPOSE(void*, mmap, void* address, std::size_t length, int protection, int flags, int fd,
                  off_t offset) {
  return map(address, length, protection, flags, fd, offset);
}
SOFTHCA_INTERPOSE(void*, mmap64, void* address, std::size_t length, int protection, int flags,
                  int fd, off_t offset) {
  return map(address, length, protection, flags, fd, offset);
}

SOFTHCA_INTERPOSE(int, close, int fd) {
  if (is_guarded(fd)) return fail(EBADF);
  if (is_known_command_fd(fd)) forget_context(fd);
  return next::close(fd);
}

SOFTHCA_INTERPOSE(int, close_range, unsigned first, unsigned last, int flags) {
  if (first > last) return fail(EINVAL);
  return close_all(first, last, flags);
}

SOFTHCA_INTERPOSE(void, closefrom, int first) {
  const ErrnoGuard guard;
  const unsigned from = first > 0 ? static_cast<unsigned>(first) : 0;
  if (close_all(from, UINT_MAX, 0) == 0 || errno != ENOSYS) return;
  const long limit = ::sysconf(_SC_OPEN_MAX);
  for (long fd = from; fd < limit; ++fd) {
    if (!is_guarded(static_cast<int>(fd))) ::syscall(SYS_close, static_cast<int>(fd));
  }
}

SOFTHCA_INTERPOSE(int, dup2, int from, int to) {
  if (from == to) return ::fcntl(from, F_GETFD) < 0 ? -1 : to;
  if (is_guarded(to) && !make_room_at(to)) return fail(EBUSY);
  return static_cast<int>(::syscall(SYS_dup3, from, to, 0));
}

SOFTHCA_INTERPOSE(int, dup3, int from, int to, int flags) {
  if (from != to && is_guarded(to) && !make_room_at(to)) return fail(EBUSY);
  return static_cast<int>(::syscall(SYS_dup3, from, to, flags));
}

SOFTHCA_INTERPOSE(int, socket, int domain, int type, int protocol) {
  // With ib_core loaded but no device, its answer "no devices" would keep libibverbs from looking
  // into sysfs.
  if (domain == AF_NETLINK && protocol == NETLINK_RDMA && host_folder() != nullptr) {
    return fail(EPROTONOSUPPORT);
  }
  return next::socket(domain, type, protocol);
}

}  // namespace softhca::shim::preload
