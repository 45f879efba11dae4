// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/preload/next.h"

#include <atomic>
#include <cerrno>

#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace softhca::shim::preload::next {
namespace {

/// Pointers found by the constructor; null before.
struct Resolved {
  int (*openat)(int, const char*, int, ...);
  int (*close)(int);
  ssize_t (*write)(int, const void*, std::size_t);
  void* (*realloc)(void*, std::size_t);
};
Resolved resolved;

template <typename Function>
void find(Function*& pointer, const char* name) {
  pointer = reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

__attribute__((constructor)) void resolve() {
  find(resolved.openat, "openat");
  find(resolved.close, "close");
  find(resolved.write, "write");
  find(resolved.realloc, "realloc");
}

/// For functions without a system call behind them: found when first called, which is never from
/// within the dynamic linker or an allocator's start.
template <typename Function>
Function* lazily(std::atomic<Function*>& cache, const char* name) {
  Function* function = cache.load(std::memory_order_acquire);
  if (function == nullptr) {
    function = reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
    cache.store(function, std::memory_order_release);
  }
  return function;
}

std::atomic<FILE* (*)(const char*, const char*)> next_fopen;
std::atomic<DIR* (*)(const char*)> next_opendir;
std::atomic<int (*)(const char*, dirent***, Filter, Compare)> next_scandir;
std::atomic<char* (*)(const char*, char*)> next_realpath;
std::atomic<int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>
    next_pthread_create;

}  // namespace

int openat(int folder, const char* path, int flags, mode_t mode) {
  if (resolved.openat != nullptr) return resolved.openat(folder, path, flags, mode);
  return static_cast<int>(::syscall(SYS_openat, folder, path, flags, mode));
}

int close(int fd) {
  if (resolved.close != nullptr) return resolved.close(fd);
  return static_cast<int>(::syscall(SYS_close, fd));
}

ssize_t write(int fd, const void* data, std::size_t length) {
  if (resolved.write != nullptr) return resolved.write(fd, data, length);
  return ::syscall(SYS_write, fd, data, length);
}

int ioctl(int fd, unsigned long request, void* argument) {
  return static_cast<int>(::syscall(SYS_ioctl, fd, request, argument));
}

void* mmap(void* address, std::size_t length, int protection, int flags, int fd, off_t offset) {
  return reinterpret_cast<void*>(
      ::syscall(SYS_mmap, address, length, protection, flags, fd, offset));
}

int socket(int domain, int type, int protocol) {
  return static_cast<int>(::syscall(SYS_socket, domain, type, protocol));
}

FILE* fopen(const char* path, const char* mode) {
  // With fopen64 and fopen one on 64-bit systems, one lookup serves both.
  auto* function = lazily(next_fopen, "fopen64");
  if (function == nullptr) {
    errno = ENOSYS;
    return nullptr;
  }
  return function(path, mode);
}

DIR* opendir(const char* path) {
  auto* function = lazily(next_opendir, "opendir");
  if (function == nullptr) {
    errno = ENOSYS;
    return nullptr;
  }
  return function(path);
}

int scandir(const char* path, dirent*** names, Filter filter, Compare compare) {
  auto* function = lazily(next_scandir, "scandir");
  if (function == nullptr) {
    errno = ENOSYS;
    return -1;
  }
  return function(path, names, filter, compare);
}

char* realpath(const char* path, char* resolved_path) {
  auto* function = lazily(next_realpath, "realpath");
  if (function == nullptr) {
    errno = ENOSYS;
    return nullptr;
  }
  return function(path, resolved_path);
}

void* realloc(void* block, std::size_t size) {
  // Earlier than the constructor there is only one thread, and the dynamic linker's own allocator
  // is behind the C library's.
  if (resolved.realloc == nullptr) find(resolved.realloc, "realloc");
  return resolved.realloc(block, size);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*routine)(void*),
                   void* argument) {
  auto* function = lazily(next_pthread_create, "pthread_create");
  return function != nullptr ? function(thread, attributes, routine, argument) : ENOSYS;
}

}  // namespace softhca::shim::preload::next
