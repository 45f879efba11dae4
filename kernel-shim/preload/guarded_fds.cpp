// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/preload/guarded_fds.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernel-shim/preload/errno_guard.h"
#include "kernel-shim/protocol/guarded_descriptor.h"

namespace softhca::shim::preload {
namespace {

constexpr unsigned kHolders = 32;
std::atomic<GuardedFd*> holders[kHolders];
std::atomic<unsigned> holders_used;  // Entries from here on were never set.
/// A child of vfork() shares this memory but not its descriptors: it must not move them.
std::atomic<pid_t> owner;

int first_high_number() {
  rlimit limit{};
  constexpr rlim_t kWanted = 700;
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur > 2 * kWanted) return kWanted;
  return static_cast<int>(limit.rlim_cur * 3 / 4);
}

/// A copy at a high number with the same close-on-exec flag, or -1.
int copy_up(int fd) {
  const int flags = ::fcntl(fd, F_GETFD);
  const int command = (flags & FD_CLOEXEC) != 0 ? F_DUPFD_CLOEXEC : F_DUPFD;
  return flags < 0 ? -1 : ::fcntl(fd, command, first_high_number());
}

GuardedFd* find(int fd) {
  const unsigned used = holders_used.load(std::memory_order_acquire);
  for (unsigned i = 0; i < used; ++i) {
    GuardedFd* holder = holders[i].load(std::memory_order_acquire);
    if (holder != nullptr && holder->load(std::memory_order_relaxed) == fd) return holder;
  }
  return nullptr;
}

void enter(GuardedFd& holder) {
  for (unsigned i = 0; i < kHolders; ++i) {
    GuardedFd* expected = nullptr;
    if (!holders[i].compare_exchange_strong(expected, &holder)) continue;
    unsigned used = holders_used.load();
    while (used <= i && !holders_used.compare_exchange_weak(used, i + 1)) {
    }
    return;
  }
}

}  // namespace

void guard(GuardedFd& holder, int fd, bool move_up) {
  const ErrnoGuard errno_guard;
  if (move_up) {
    const int high = copy_up(fd);
    if (high >= 0) {
      ::syscall(SYS_close, fd);
      fd = high;
    }
  }
  owner.store(::getpid(), std::memory_order_relaxed);
  holder.store(fd, std::memory_order_release);
  enter(holder);
}

int unguard(GuardedFd& holder) {
  for (std::atomic<GuardedFd*>& entry : holders) {
    GuardedFd* expected = &holder;
    if (entry.compare_exchange_strong(expected, nullptr)) break;
  }
  return holder.exchange(-1);
}

bool is_guarded(int fd) {
  return fd >= 0 && find(fd) != nullptr;
}

int next_guarded(int first) {
  int next = -1;
  const unsigned used = holders_used.load(std::memory_order_acquire);
  for (unsigned i = 0; i < used; ++i) {
    const GuardedFd* holder = holders[i].load(std::memory_order_acquire);
    if (holder == nullptr) continue;
    const int fd = holder->load(std::memory_order_relaxed);
    if (fd >= first && (next < 0 || fd < next)) next = fd;
  }
  return next;
}

bool make_room_at(int fd) {
  GuardedFd* holder = find(fd);
  if (holder == nullptr || owner.load(std::memory_order_relaxed) != ::getpid()) return true;
  const ErrnoGuard errno_guard;
  const int moved = copy_up(fd);
  if (moved < 0) return false;
  holder->store(moved, std::memory_order_release);
  return true;
}

void adopt_guarded_fds() {
  owner.store(::getpid(), std::memory_order_relaxed);
}

}  // namespace softhca::shim::preload

void softhca_guard_descriptor(std::atomic<int>* holder, int fd) {
  softhca::shim::preload::guard(*holder, fd);
}

int softhca_unguard_descriptor(std::atomic<int>* holder) {
  return softhca::shim::preload::unguard(*holder);
}
