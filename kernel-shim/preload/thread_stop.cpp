// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/preload/thread_stop.h"

#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdint>
#include <ctime>

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernel-shim/preload/errno_guard.h"

namespace softhca::shim::preload {
namespace {

constexpr unsigned kMaxThreads = 512;
constexpr std::int64_t kPatienceNs = 100'000'000;
constexpr long kLookAgainNs = 500'000;

/// A stop lasts while `epoch` has one odd value.
std::atomic<std::uint32_t> epoch;
/// What the handlers of the stopped threads enter: epoch and thread number, so that one that comes
/// too late for its stop is not taken for a part of the next.
std::atomic<std::uint64_t> parked[kMaxThreads];
std::atomic<std::uint32_t> parked_count;
int stop_signal;

std::uint64_t ticket(std::uint32_t of_epoch, pid_t thread) {
  return static_cast<std::uint64_t>(of_epoch) << 32 | static_cast<std::uint32_t>(thread);
}

pid_t thread_id() {
  return static_cast<pid_t>(::syscall(SYS_gettid));
}

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t value, long timeout_ns) {
  const timespec timeout{0, timeout_ns};
  ::syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, timeout_ns != 0 ? &timeout : nullptr,
            nullptr, 0);
}

void futex_wake_all(std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

void wait_for_the_end(int /*signal*/, siginfo_t* info, void* /*context*/) {
  const ErrnoGuard guard;
  const std::uint32_t now = epoch.load(std::memory_order_seq_cst);
  if (now % 2 == 0 || info->si_code != SI_TKILL || info->si_pid != ::getpid()) return;
  const std::uint32_t slot = parked_count.fetch_add(1, std::memory_order_seq_cst);
  if (slot >= kMaxThreads) return;
  parked[slot].store(ticket(now, thread_id()), std::memory_order_seq_cst);
  futex_wake_all(parked_count);
  while (epoch.load(std::memory_order_seq_cst) == now) futex_wait(epoch, now, 0);
}

bool is_our_handler(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && (action.sa_flags & SA_SIGINFO) != 0 &&
         action.sa_sigaction == wait_for_the_end;
}

/// Takes the highest real-time signal that the application leaves alone. It stays ours: a signal
/// that is delivered late would end the process.
bool install_handler() {
  if (stop_signal != 0 && is_our_handler(stop_signal)) return true;
  for (int signal = SIGRTMAX; signal > SIGRTMIN; --signal) {
    struct sigaction present {};
    if (::sigaction(signal, nullptr, &present) != 0) continue;
    const bool is_free =
        (present.sa_flags & SA_SIGINFO) == 0 && present.sa_handler == SIG_DFL;  // NOLINT
    if (!is_free && !is_our_handler(signal)) continue;
    struct sigaction ours {};
    ours.sa_sigaction = wait_for_the_end;
    ours.sa_flags = SA_SIGINFO | SA_RESTART;
    ::sigfillset(&ours.sa_mask);
    if (::sigaction(signal, &ours, nullptr) != 0) continue;
    stop_signal = signal;
    return true;
  }
  return false;
}

struct DirectoryEntry {
  std::uint64_t inode;
  std::int64_t offset;
  std::uint16_t length;
  std::uint8_t type;
  char name[1];
};

/// Calls visit(thread) for every thread of the process until it returns false; false if the list
/// cannot be read.
template <typename Visit>
bool for_each_thread(Visit&& visit) {
  const int folder = static_cast<int>(
      ::syscall(SYS_openat, AT_FDCWD, "/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder < 0) return false;
  alignas(8) char buffer[4096];
  long length = 0;
  bool goes_on = true;
  while (goes_on && (length = ::syscall(SYS_getdents64, folder, buffer, sizeof(buffer))) > 0) {
    for (long at = 0; goes_on && at < length;) {
      const auto* entry = reinterpret_cast<const DirectoryEntry*>(buffer + at);
      at += entry->length;
      pid_t thread = 0;
      for (const char* digit = entry->name; *digit >= '0' && *digit <= '9'; ++digit) {
        thread = thread * 10 + (*digit - '0');
      }
      if (thread != 0) goes_on = visit(thread);
    }
  }
  ::syscall(SYS_close, folder);
  return length >= 0;
}

bool is_parked(std::uint32_t now, pid_t thread) {
  std::uint32_t count = parked_count.load(std::memory_order_seq_cst);
  if (count > kMaxThreads) count = kMaxThreads;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (parked[i].load(std::memory_order_seq_cst) == ticket(now, thread)) return true;
  }
  return false;
}

/// The threads that this stop has sent the signal to.
class Signalled {
 public:
  /// False if the table is full.
  bool send(pid_t thread) {
    for (unsigned i = 0; i < count_; ++i) {
      if (threads_[i] == thread) return true;
    }
    if (count_ == kMaxThreads) return false;
    threads_[count_++] = thread;
    ::syscall(SYS_tgkill, ::getpid(), thread, stop_signal);
    return true;
  }

 private:
  pid_t threads_[kMaxThreads];
  unsigned count_ = 0;
};

std::int64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

/// Signals whoever does not wait yet; a thread that runs may start others meanwhile, so that it
/// looks again until it finds nobody.
bool park_all(std::uint32_t now) {
  const pid_t own = thread_id();
  const std::int64_t end = now_ns() + kPatienceNs;
  Signalled signalled;
  while (true) {
    const std::uint32_t seen = parked_count.load(std::memory_order_seq_cst);
    bool all_parked = true;
    bool has_room = true;
    const bool listed = for_each_thread([&](pid_t thread) {
      if (thread == own || is_parked(now, thread)) return true;
      all_parked = false;
      has_room = signalled.send(thread);
      return has_room;
    });
    if (!listed || !has_room) return false;
    if (all_parked) return true;
    if (now_ns() >= end) return false;
    futex_wait(parked_count, seen, kLookAgainNs);
  }
}

}  // namespace

bool is_only_thread() {
  // Each thread is a folder of /proc/self/task.
  struct stat status {};
  constexpr nlink_t kLinksOfOne = 3;
  return ::syscall(SYS_newfstatat, AT_FDCWD, "/proc/self/task", &status, 0) == 0 &&
         status.st_nlink == kLinksOfOne;
}

bool stop_other_threads() {
  const ErrnoGuard guard;
  if (!install_handler()) return false;
  parked_count.store(0, std::memory_order_seq_cst);
  const std::uint32_t now = epoch.fetch_add(1, std::memory_order_seq_cst) + 1;
  if (park_all(now)) return true;
  resume_other_threads();
  return false;
}

void resume_other_threads() {
  const ErrnoGuard guard;
  epoch.fetch_add(1, std::memory_order_seq_cst);
  futex_wake_all(epoch);
}

}  // namespace softhca::shim::preload
