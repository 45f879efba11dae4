// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/preload/host_tree.h"

#include <atomic>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

namespace softhca::shim::preload {
namespace {

enum class FolderState : int { unknown, reading, absent, present };
std::atomic<FolderState> folder_state;
char folder[kMaxPath];

/// Compares a path with a constant one, taking "//" and "/./" for "/"; the path's rest, or null.
const char* after_prefix(const char* path, const char* prefix) {
  while (*prefix != 0) {
    if (*path != *prefix) return nullptr;
    if (*path == '/') {
      while (path[1] == '/' || (path[1] == '.' && path[2] == '/')) path += path[1] == '/' ? 1 : 2;
    }
    ++path;
    ++prefix;
  }
  return path;
}

bool ends_component(const char* rest) {
  return rest != nullptr && (*rest == 0 || *rest == '/');
}

/// Callers pass bad pointers too, for which the kernel answers EFAULT.
bool is_plausible(const char* path) {
  const auto address = reinterpret_cast<std::uintptr_t>(path);
  return address >= 4096 && address >> 47 == 0;
}

/// Appends; false if it does not fit.
bool append(char* text, std::size_t& used, std::size_t capacity, const char* more) {
  const std::size_t length = std::strlen(more);
  if (length >= capacity - used) return false;
  std::memcpy(text + used, more, length + 1);
  used += length;
  return true;
}

}  // namespace

const char* host_folder() {
  FolderState state = folder_state.load(std::memory_order_acquire);
  if (state == FolderState::present) return folder;
  if (state == FolderState::absent) return nullptr;
  const char* value = std::getenv("SOFTHCA_HOST_DIR");
  const std::size_t length = value != nullptr ? std::strlen(value) : 0;
  const bool usable = length > 0 && length < kMaxPath / 2 && value[0] == '/';
  if (!usable) {
    // Too early, the C library has no environment yet: ask again next time.
    if (environ != nullptr) folder_state.store(FolderState::absent, std::memory_order_release);
    return nullptr;
  }
  FolderState expected = FolderState::unknown;
  if (!folder_state.compare_exchange_strong(expected, FolderState::reading)) {
    return expected == FolderState::present ? folder : value;
  }
  std::memcpy(folder, value, length + 1);
  for (std::size_t end = length; end > 1 && folder[end - 1] == '/'; --end) {
    folder[end - 1] = 0;
  }
  folder_state.store(FolderState::present, std::memory_order_release);
  return folder;
}

PathOwner owner_of(const char* path) {
  if (!is_plausible(path) || path[0] != '/') return PathOwner::real;
  if (after_prefix(path, "/sys/") != nullptr) {
    if (host_folder() == nullptr) return PathOwner::real;
    // infiniband, infiniband_verbs, infiniband_mad, infiniband_cm, ...
    return after_prefix(path, "/sys/class/infiniband") != nullptr ? PathOwner::virtual_host
                                                                  : PathOwner::fallback;
  }
  if (ends_component(after_prefix(path, "/dev/infiniband"))) {
    return host_folder() == nullptr ? PathOwner::real : PathOwner::virtual_host;
  }
  return PathOwner::real;
}

bool map_path(const char* path, char (&mapped)[kMaxPath]) {
  const char* root = host_folder();
  std::size_t used = 0;
  return root != nullptr && append(mapped, used, kMaxPath, root) &&
         append(mapped, used, kMaxPath, path);
}

const char* unmapped(const char* path) {
  const char* root = host_folder();
  if (root == nullptr || path == nullptr) return path;
  const std::size_t length = std::strlen(root);
  if (std::strncmp(path, root, length) != 0) return path;
  const char* rest = path + length;
  const bool ours = std::strncmp(rest, "/sys", 4) == 0 || std::strncmp(rest, "/dev", 4) == 0;
  return ours && (rest[4] == 0 || rest[4] == '/') ? rest : path;
}

int device_index(const char* path) {
  if (!is_plausible(path) || path[0] != '/') return -1;
  const char* digits = after_prefix(path, "/dev/infiniband/uverbs");
  if (digits == nullptr || host_folder() == nullptr) return -1;
  int index = 0;
  int count = 0;
  for (; digits[count] >= '0' && digits[count] <= '9'; ++count) {
    if (count == 4) return -1;
    index = index * 10 + (digits[count] - '0');
  }
  return count > 0 && digits[count] == 0 ? index : -1;
}

std::uint64_t device_number(const char* device_file) {
  const char* root = host_folder();
  const char* slash = std::strrchr(device_file, '/');
  if (root == nullptr || slash == nullptr) return 0;
  const char* device_class = "/sys/class/misc";
  if (std::strncmp(slash, "/uverbs", 7) == 0) device_class = "/sys/class/infiniband_verbs";
  if (std::strncmp(slash, "/umad", 5) == 0 || std::strncmp(slash, "/issm", 5) == 0) {
    device_class = "/sys/class/infiniband_mad";
  }
  char path[kMaxPath];
  std::size_t used = 0;
  if (!append(path, used, kMaxPath, root) || !append(path, used, kMaxPath, device_class) ||
      !append(path, used, kMaxPath, slash) || !append(path, used, kMaxPath, "/dev")) {
    return 0;
  }
  const ErrnoGuard guard;
  const int fd = static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC));
  if (fd < 0) return 0;
  char text[32] = {};
  ::syscall(SYS_read, fd, text, sizeof(text) - 1);
  ::syscall(SYS_close, fd);
  char* end = nullptr;
  const unsigned long major = std::strtoul(text, &end, 10);
  if (*end != ':') return 0;
  return makedev(static_cast<unsigned>(major),
                 static_cast<unsigned>(std::strtoul(end + 1, nullptr, 10)));
}

}  // namespace softhca::shim::preload
