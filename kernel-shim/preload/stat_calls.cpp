// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause

/// stat(), statx(), access(), readlink(), chdir() and their relatives. On 64-bit systems the names
/// with and without "64" have the same structures.

#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "kernel-shim/preload/command_fd.h"
#include "kernel-shim/preload/host_tree.h"
#include "kernel-shim/preload/interpose.h"
#include "kernel-shim/preload/next.h"

namespace softhca::shim::preload {
namespace {

constexpr mode_t kDeviceMode = S_IFCHR | 0666;

/// For a path of the virtual host: /dev/infiniband and not /sys.
bool is_below_dev(const char* path) {
  return path != nullptr && std::strstr(path, "dev/infiniband") != nullptr;
}

/// True for what lies below /dev/infiniband, which the host's tree holds as plain files.
bool is_device_file(const char* path, mode_t mode) {
  return !S_ISDIR(mode) && owner_of(path) == PathOwner::virtual_host && is_below_dev(path);
}

int stat_fd(int fd, struct stat* status) {
  const int result = static_cast<int>(::syscall(SYS_fstat, fd, status));
  if (result == 0 && S_ISSOCK(status->st_mode) && is_command_socket(fd, status->st_ino)) {
    status->st_mode = kDeviceMode;
    status->st_rdev = command_device_number();
  }
  return result;
}

int stat_path(int folder, const char* path, struct stat* status, int flags) {
  if ((flags & AT_EMPTY_PATH) != 0 && (path == nullptr || *path == 0) && folder >= 0) {
    return stat_fd(folder, status);
  }
  const int result = static_cast<int>(redirect(path, [=](const char* mapped) {
    return ::syscall(SYS_newfstatat, folder, mapped, status, flags);
  }));
  if (result == 0 && is_device_file(path, status->st_mode)) {
    status->st_mode = kDeviceMode;
    status->st_rdev = device_number(path);
  }
  return result;
}

void set_device(struct statx* status, std::uint64_t device) {
  status->stx_mode = kDeviceMode;
  status->stx_rdev_major = major(device);
  status->stx_rdev_minor = minor(device);
}

int statx_path(int folder, const char* path, int flags, unsigned mask, struct statx* status) {
  const int result = static_cast<int>(redirect(path, [=](const char* mapped) {
    return ::syscall(SYS_statx, folder, mapped, flags, mask, status);
  }));
  if (result != 0) return result;
  if (S_ISSOCK(status->stx_mode) && (flags & AT_EMPTY_PATH) != 0 && *path == 0 &&
      is_command_socket(folder, status->stx_ino)) {
    set_device(status, command_device_number());
  } else if (is_device_file(path, status->stx_mode)) {
    set_device(status, device_number(path));
  }
  return result;
}

int check_access(int folder, const char* path, int mode, int flags) {
  return static_cast<int>(redirect(path, [=](const char* mapped) {
    if (flags == 0) return ::syscall(SYS_faccessat, folder, mapped, mode);
#ifdef SYS_faccessat2
    return ::syscall(SYS_faccessat2, folder, mapped, mode, flags);
#else
    return ::syscall(SYS_faccessat, folder, mapped, mode);
#endif
  }));
}

/// The machine's name in place of the host folder's, for what readlink() and realpath() return.
ssize_t read_link(int folder, const char* path, char* target, std::size_t size) {
  const ssize_t length = redirect(path, [=](const char* mapped) {
    return ::syscall(SYS_readlinkat, folder, mapped, target, size);
  });
  if (length <= 0 || owner_of(path) == PathOwner::real ||
      static_cast<std::size_t>(length) >= kMaxPath) {
    return length;
  }
  char text[kMaxPath] = {};
  // NOLINTBEGIN(bugprone-not-null-terminated-result): readlink() writes no terminating zero.
  std::memcpy(text, target, static_cast<std::size_t>(length));
  const char* name = unmapped(text);
  if (name == text) return length;
  const std::size_t kept = std::strlen(name);
  std::memcpy(target, name, kept);
  // NOLINTEND(bugprone-not-null-terminated-result)
  return static_cast<ssize_t>(kept);
}

char* real_path(const char* path, char* resolved) {
  char* result =
      redirect(path, [=](const char* mapped) { return next::realpath(mapped, resolved); });
  if (result == nullptr || owner_of(path) == PathOwner::real) return result;
  const char* name = unmapped(result);
  if (name != result) std::memmove(result, name, std::strlen(name) + 1);
  return result;
}

}  // namespace

SOFTHCA_INTERPOSE(int, stat, const char* path, struct stat* status) {
  return stat_path(AT_FDCWD, path, status, 0);
}
SOFTHCA_INTERPOSE(int, stat64, const char* path, struct stat* status) {
  return stat_path(AT_FDCWD, path, status, 0);
}
SOFTHCA_INTERPOSE(int, lstat, const char* path, struct stat* status) {
  return stat_path(AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW);
}
SOFTHCA_INTERPOSE(int, lstat64, const char* path, struct stat* status) {
  return stat_path(AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW);
}
SOFTHCA_INTERPOSE(int, fstatat, int folder, const char* path, struct stat* status, int flags) {
  return stat_path(folder, path, status, flags);
}
SOFTHCA_INTERPOSE(int, fstatat64, int folder, const char* path, struct stat* status, int flags) {
  return stat_path(folder, path, status, flags);
}
SOFTHCA_INTERPOSE(int, fstat, int fd, struct stat* status) {
  return stat_fd(fd, status);
}
SOFTHCA_INTERPOSE(int, fstat64, int fd, struct stat* status) {
  return stat_fd(fd, status);
}

// Programs linked against a glibc before 2.33 call these; the first argument is a version of the
// structure, of which 64-bit systems have one.
SOFTHCA_INTERPOSE(int, __xstat, int, const char* path, struct stat* status) {
  return stat_path(AT_FDCWD, path, status, 0);
}
SOFTHCA_INTERPOSE(int, __xstat64, int, const char* path, struct stat* status) {
  return stat_path(AT_FDCWD, path, status, 0);
}
SOFTHCA_INTERPOSE(int, __lxstat, int, const char* path, struct stat* status) {
  return stat_path(AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW);
}
SOFTHCA_INTERPOSE(int, __lxstat64, int, const char* path, struct stat* status) {
  return stat_path(AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW);
}
SOFTHCA_INTERPOSE(int, __fxstat, int, int fd, struct stat* status) {
  return stat_fd(fd, status);
}
SOFTHCA_INTERPOSE(int, __fxstat64, int, int fd, struct stat* status) {
  return stat_fd(fd, status);
}
SOFTHCA_INTERPOSE(int, __fxstatat, int, int folder, const char* path, struct stat* status,
                  int flags) {
  return stat_path(folder, path, status, flags);
}
SOFTHCA_INTERPOSE(int, __fxstatat64, int, int folder, const char* path, struct stat* status,
                  int flags) {
  return stat_path(folder, path, status, flags);
}

SOFTHCA_INTERPOSE(int, statx, int folder, const char* path, int flags, unsigned mask,
                  struct statx* status) {
  return statx_path(folder, path, flags, mask, status);
}

SOFTHCA_INTERPOSE(int, access, const char* path, int mode) {
  return check_access(AT_FDCWD, path, mode, 0);
}
SOFTHCA_INTERPOSE(int, euidaccess, const char* path, int mode) {
  return check_access(AT_FDCWD, path, mode, AT_EACCESS);
}
SOFTHCA_INTERPOSE(int, eaccess, const char* path, int mode) {
  return check_access(AT_FDCWD, path, mode, AT_EACCESS);
}
SOFTHCA_INTERPOSE(int, faccessat, int folder, const char* path, int mode, int flags) {
  return check_access(folder, path, mode, flags);
}

SOFTHCA_INTERPOSE(ssize_t, readlink, const char* path, char* target, std::size_t size) {
  return read_link(AT_FDCWD, path, target, size);
}
SOFTHCA_INTERPOSE(ssize_t, readlinkat, int folder, const char* path, char* target,
                  std::size_t size) {
  return read_link(folder, path, target, size);
}
SOFTHCA_INTERPOSE(ssize_t, __readlink_chk, const char* path, char* target, std::size_t size,
                  std::size_t room) {
  if (size > room) std::abort();
  return read_link(AT_FDCWD, path, target, size);
}

SOFTHCA_INTERPOSE(char*, realpath, const char* path, char* resolved) {
  return real_path(path, resolved);
}
SOFTHCA_INTERPOSE(char*, __realpath_chk, const char* path, char* resolved, std::size_t room) {
  if (room < kMaxPath) std::abort();
  return real_path(path, resolved);
}
SOFTHCA_INTERPOSE(char*, canonicalize_file_name, const char* path) {
  return real_path(path, nullptr);
}

// `ls -l` looks for access control lists.
SOFTHCA_INTERPOSE(ssize_t, getxattr, const char* path, const char* name, void* value,
                  std::size_t size) {
  return redirect(
      path, [=](const char* mapped) { return ::syscall(SYS_getxattr, mapped, name, value, size); });
}
SOFTHCA_INTERPOSE(ssize_t, lgetxattr, const char* path, const char* name, void* value,
                  std::size_t size) {
  return redirect(path, [=](const char* mapped) {
    return ::syscall(SYS_lgetxattr, mapped, name, value, size);
  });
}
SOFTHCA_INTERPOSE(ssize_t, listxattr, const char* path, char* list, std::size_t size) {
  return redirect(path,
                  [=](const char* mapped) { return ::syscall(SYS_listxattr, mapped, list, size); });
}
SOFTHCA_INTERPOSE(ssize_t, llistxattr, const char* path, char* list, std::size_t size) {
  return redirect(
      path, [=](const char* mapped) { return ::syscall(SYS_llistxattr, mapped, list, size); });
}

SOFTHCA_INTERPOSE(int, chdir, const char* path) {
  return static_cast<int>(
      redirect(path, [](const char* mapped) { return ::syscall(SYS_chdir, mapped); }));
}

}  // namespace softhca::shim::preload
