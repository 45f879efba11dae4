// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause

/// open(), fopen(), opendir() and their relatives.

#include <cstdarg>
#include <cstddef>
#include <cstring>

#include <fcntl.h>

#include "kernel-shim/preload/command_fd.h"
#include "kernel-shim/preload/host_tree.h"
#include "kernel-shim/preload/interpose.h"
#include "kernel-shim/preload/next.h"

namespace softhca::shim::preload {
namespace {

/// Files that change by themselves are written anew just before they are read.
void refresh_if_counter(const char* path) {
  if (owner_of(path) != PathOwner::virtual_host) return;
  const char* slash = std::strrchr(path, '/');
  constexpr char kFolder[] = "counters";  // and hw_counters
  constexpr std::ptrdiff_t kLength = sizeof(kFolder) - 1;
  if (slash - path < kLength || std::strncmp(slash - kLength, kFolder, kLength) != 0) return;
  refresh_tree();
}

int open_path(int folder, const char* path, int flags, mode_t mode) {
  const int device = device_index(path);
  if (device >= 0 && (flags & O_PATH) == 0) {
    if ((flags & O_DIRECTORY) != 0) return fail(ENOTDIR);
    return open_device(device, flags);
  }
  refresh_if_counter(path);
  return redirect(path,
                  [=](const char* mapped) { return next::openat(folder, mapped, flags, mode); });
}

FILE* open_stream(const char* path, const char* mode) {
  refresh_if_counter(path);
  return redirect(path, [=](const char* mapped) { return next::fopen(mapped, mode); });
}

bool takes_mode(int flags) {
  return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
}

mode_t mode_argument(int flags, va_list arguments) {
  return takes_mode(flags) ? va_arg(arguments, mode_t) : 0;
}

}  // namespace

#define SOFTHCA_OPEN(name)                                         \
  SOFTHCA_INTERPOSE(int, name, const char* path, int flags, ...) { \
    va_list arguments;                                             \
    va_start(arguments, flags);                                    \
    const mode_t mode = mode_argument(flags, arguments);           \
    va_end(arguments);                                             \
    return open_path(AT_FDCWD, path, flags, mode);                 \
  }
SOFTHCA_OPEN(open)
SOFTHCA_OPEN(open64)

#define SOFTHCA_OPENAT(name)                                                   \
  SOFTHCA_INTERPOSE(int, name, int folder, const char* path, int flags, ...) { \
    va_list arguments;                                                         \
    va_start(arguments, flags);                                                \
    const mode_t mode = mode_argument(flags, arguments);                       \
    va_end(arguments);                                                         \
    return open_path(folder, path, flags, mode);                               \
  }
SOFTHCA_OPENAT(openat)
SOFTHCA_OPENAT(openat64)

SOFTHCA_INTERPOSE(int, __open_2, const char* path, int flags) {
  return open_path(AT_FDCWD, path, flags, 0);
}
SOFTHCA_INTERPOSE(int, __open64_2, const char* path, int flags) {
  return open_path(AT_FDCWD, path, flags, 0);
}
SOFTHCA_INTERPOSE(int, __openat_2, int folder, const char* path, int flags) {
  return open_path(folder, path, flags, 0);
}
SOFTHCA_INTERPOSE(int, __openat64_2, int folder, const char* path, int flags) {
  return open_path(folder, path, flags, 0);
}

SOFTHCA_INTERPOSE(FILE*, fopen, const char* path, const char* mode) {
  return open_stream(path, mode);
}
SOFTHCA_INTERPOSE(FILE*, fopen64, const char* path, const char* mode) {
  return open_stream(path, mode);
}

SOFTHCA_INTERPOSE(DIR*, opendir, const char* path) {
  return redirect(path, [](const char* mapped) { return next::opendir(mapped); });
}

SOFTHCA_INTERPOSE(int, scandir, const char* path, dirent*** names, next::Filter filter,
                  next::Compare compare) {
  return redirect(
      path, [=](const char* mapped) { return next::scandir(mapped, names, filter, compare); });
}
SOFTHCA_INTERPOSE(int, scandir64, const char* path, dirent*** names, next::Filter filter,
                  next::Compare compare) {
  return redirect(
      path, [=](const char* mapped) { return next::scandir(mapped, names, filter, compare); });
}

}  // namespace softhca::shim::preload
