// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/preload/thread_stop.h"

#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdint>
#include <cstring>
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
constexpr std::int64_t kNsPerMs = 1'000'000;
/// Who has not answered then is looked at.
constexpr std::int64_t kCloserLookNs = 5 * kNsPerMs;
/// Who has not answered then, although it could have, is given up.
constexpr std::int64_t kPatienceNs = 100 * kNsPerMs;
/// Who sleeps in the kernel for so long, where signals do not reach it, is given up.
constexpr std::int64_t kMostPatienceNs = 5000 * kNsPerMs;
/// Long enough on a processor for what the C library does with all signals blocked, and for a
/// system call.
constexpr std::int64_t kDeafRunNs = 5 * kNsPerMs;
constexpr std::int64_t kRunNs = 1000 * kNsPerMs;
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
  /// False if the table is full, or no more signals may be pending.
  bool send(pid_t thread) {
    for (unsigned i = 0; i < count_; ++i) {
      if (threads_[i] == thread) return true;
    }
    if (count_ == kMaxThreads) return false;
    threads_[count_++] = thread;
    return ::syscall(SYS_tgkill, ::getpid(), thread, stop_signal) == 0 || errno != EAGAIN;
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

/// Writes the decimal digits of `number`; the end.
char* put_number(char* at, unsigned number) {
  char digits[10];
  unsigned count = 0;
  do {
    digits[count++] = static_cast<char>('0' + number % 10);
    number /= 10;
  } while (number != 0);
  while (count != 0) *at++ = digits[--count];
  return at;
}

char* put_text(char* at, const char* text) {
  while (*text != 0) *at++ = *text++;
  return at;
}

/// Reads a file of the thread's folder into `text`. False: it has ended.
template <std::size_t size>
bool read_of_thread(pid_t thread, const char* name, char (&text)[size]) {
  char path[64];
  char* at = put_text(path, "/proc/self/task/");
  at = put_number(at, static_cast<unsigned>(thread));
  *put_text(at, name) = 0;
  const int file = static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC));
  if (file < 0) return false;
  const long length = ::syscall(SYS_read, file, text, size - 1);
  ::syscall(SYS_close, file);
  if (length <= 0) return false;
  text[length] = 0;
  return true;
}

/// What stands behind "\nNAME:\t"; empty if that is not there.
const char* field_of(const char* text, const char* name) {
  const char* const found = std::strstr(text, name);
  return found == nullptr ? "" : found + std::strlen(name);
}

/// One of those that do not answer.
struct Straggler {
  bool dead = false;  // A main thread that has called pthread_exit() stays in the list.
  bool runnable = false;
  bool is_uninterruptible = false;
  bool is_deaf = true;  // Blocks the signal, or it is not known.
};

Straggler look_at(pid_t thread) {
  Straggler found;
  char status[4096];
  if (!read_of_thread(thread, "/status", status)) return found;
  const char state = *field_of(status, "\nState:\t");
  found.dead = state == 'Z' || state == 'X';
  found.runnable = state == 'R';
  found.is_uninterruptible = state == 'D';
  // 64 bits in hexadecimal digits, the one of signal 1 is the last.
  const char* const blocked = field_of(status, "\nSigBlk:\t");
  const unsigned bit = static_cast<unsigned>(stop_signal) - 1;
  if (std::strlen(blocked) >= 16) {
    const char digit = blocked[15 - bit / 4];
    const int value = digit <= '9' ? digit - '0' : digit - 'a' + 10;
    found.is_deaf = (value >> bit % 4 & 1) != 0;
  }
  return found;
}

/// For how long the thread has had a processor, or -1.
std::int64_t run_time_of(pid_t thread) {
  char text[128];
  if (!read_of_thread(thread, "/schedstat", text)) return -1;
  std::int64_t time = 0;
  for (const char* digit = text; *digit >= '0' && *digit <= '9'; ++digit) {
    time = time * 10 + (*digit - '0');
  }
  return time;
}

/// Who will not answer however long it is waited for. That is not who waits for a processor: on a
/// loaded machine that takes as long as it takes.
class HopelessOnes {
 public:
  bool include(pid_t thread, const Straggler& straggler, std::int64_t waited) {
    if (!straggler.runnable) {
      const bool may_hear = straggler.is_uninterruptible || !straggler.is_deaf;
      return !may_hear || waited >= kMostPatienceNs;
    }
    const std::int64_t run_time = run_time_of(thread);
    if (watched_ == 0 || watched_ == thread) seen_ = true;
    if (watched_ == 0) {
      watched_ = thread;
      run_time_ = run_time;
    }
    const std::int64_t enough = straggler.is_deaf ? kDeafRunNs : kRunNs;
    return run_time < 0 || (watched_ == thread && run_time - run_time_ >= enough);
  }
  void end_of_look() {
    if (!seen_) watched_ = 0;
    seen_ = false;
  }

 private:
  pid_t watched_ = 0;  // One at a time.
  std::int64_t run_time_ = 0;
  bool seen_ = false;
};

/// Signals whoever does not wait yet; a thread that runs may start others meanwhile, so that it
/// looks again until it finds nobody.
bool park_all(std::uint32_t now) {
  const pid_t own = thread_id();
  const std::int64_t begin = now_ns();
  Signalled signalled;
  HopelessOnes hopeless;
  while (true) {
    const std::uint32_t seen = parked_count.load(std::memory_order_seq_cst);
    const std::int64_t waited = now_ns() - begin;
    bool all_parked = true;
    bool goes_on = true;
    const bool listed = for_each_thread([&](pid_t thread) {
      if (thread == own || is_parked(now, thread)) return true;
      if (waited >= kCloserLookNs) {
        const Straggler straggler = look_at(thread);
        if (straggler.dead) return true;
        if (waited >= kPatienceNs && hopeless.include(thread, straggler, waited)) goes_on = false;
      }
      all_parked = false;
      goes_on = goes_on && signalled.send(thread);
      return goes_on;
    });
    if (!listed) return false;
    if (all_parked) return true;
    if (!goes_on) return false;
    hopeless.end_of_look();
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
