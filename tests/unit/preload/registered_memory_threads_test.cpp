// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause

/// Memory that other threads go on using while it is shared: they wait, or are stopped.

#include <atomic>
#include <chrono>
#include <csignal>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fake_device.h"
#include "kernel-shim/protocol/protocol.h"
#include "registered_region.h"

namespace softhca::shim::test {
namespace {

constexpr uid_t kNobody = 65534;

/// Runs `check` in a child that has no privileges, where userfaultfd is refused: threads are then
/// stopped by a signal. 0 if it succeeded.
template <typename Check>
int as_nobody(Check&& check) {
  const pid_t child = ::fork();
  if (child == 0) {
    // The device is opened before: its folder belongs to the parent's user.
    const Device device;
    if (::setgid(kNobody) != 0 || ::setuid(kNobody) != 0) ::_exit(77);
    ::_exit(check(device));
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// Threads count up words of memory that is being shared: each word must end at the thread's own
/// count. 0, or what went wrong.
int count_while_sharing(const Device& device) {
  constexpr std::size_t kPages = 64;
  constexpr int kRounds = 40;
  constexpr unsigned kThreads = 3;
  for (int round = 0; round < kRounds; ++round) {
    char* memory = map_pages(kPages);
    std::atomic<bool> stop = false;
    std::atomic<unsigned> running = 0;
    std::atomic<bool> lost = false;
    std::vector<std::thread> threads;
    for (unsigned thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        std::uint64_t count = 0;
        running.fetch_add(1);
        while (!stop.load(std::memory_order_relaxed)) {
          ++count;
          for (std::size_t page = 0; page < kPages; ++page) {
            auto* word =
                reinterpret_cast<volatile std::uint64_t*>(memory + page * kPage) + 1 + thread;
            if (*word != count - 1) lost = true;
            *word = count;
          }
        }
      });
    }
    while (running.load() < kThreads) std::this_thread::yield();
    // The fake daemon adds one to the first word, which is nobody's.
    const std::uint64_t flags = share_in_use(device, memory, kPages * kPage);
    stop = true;
    for (std::thread& thread : threads) thread.join();
    ::munmap(memory, kPages * kPage);
    if (flags != kFlagShared) return 2;
    if (lost) return 3;
  }
  return 0;
}

TEST(RegisteredMemory, NoStoreOfAnotherThreadIsLost) {
  const Device device;
  EXPECT_EQ(count_while_sharing(device), 0);
}

TEST(RegisteredMemory, NoStoreOfAnotherThreadIsLostWithoutPrivileges) {
  if (::geteuid() != 0) GTEST_SKIP() << "without root the test before has run this way already";
  EXPECT_EQ(as_nobody(count_while_sharing), 0);
}

TEST(RegisteredMemory, AThreadThatCannotBeStoppedLeavesItUnshared) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs a change of user";
  EXPECT_EQ(as_nobody([](const Device& device) {
              std::atomic<bool> blocked = false;
              std::atomic<bool> stop = false;
              std::thread deaf([&] {
                sigset_t all;
                ::sigfillset(&all);
                ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
                blocked = true;
                while (!stop) std::this_thread::yield();
              });
              while (!blocked) std::this_thread::yield();
              char* memory = map_pages(2);
              memory[0] = 5;
              const std::uint64_t flags = share_in_use(device, memory, 2 * kPage);
              const bool kept = memory[0] == 5;
              stop = true;
              deaf.join();
              return flags == kFlagUnshared && kept ? 0 : 1;
            }),
            0);
}

void bind_to(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  ::sched_setaffinity(0, sizeof(set), &set);
}

/// Of the processors that the caller may use.
int any_processor() {
  cpu_set_t set;
  CPU_ZERO(&set);
  ::sched_getaffinity(0, sizeof(set), &set);
  int processor = 0;
  while (processor < CPU_SETSIZE - 1 && !CPU_ISSET(processor, &set)) ++processor;
  return processor;
}

/// A tenth of a millisecond or so.
void compute() {
  static std::atomic<int> sum = 0;
  for (int i = 0; i < 20'000; ++i) sum.fetch_add(i, std::memory_order_relaxed);
}

/// Keeps a processor busy, so that a thread of the lowest priority has it once or twice a second.
class Occupied {
 public:
  explicit Occupied(int processor) {
    for (pid_t& child : children_) {
      child = ::fork();
      if (child != 0) continue;
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      bind_to(processor);
      while (true) compute();
    }
  }
  Occupied(const Occupied&) = delete;
  Occupied& operator=(const Occupied&) = delete;
  ~Occupied() {
    for (const pid_t child : children_) {
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
    }
  }

 private:
  pid_t children_[3];
};

/// Shares memory while another thread waits for a processor, with every signal blocked if it is
/// `deaf` for a moment. 0: it was shared each time.
int share_beside_a_starved_thread(const Device& device, bool deaf) {
  const int processor = any_processor();
  const Occupied occupied(processor);
  std::atomic<bool> stop = false;
  std::atomic<bool> runs = false;
  std::thread starved([&] {
    bind_to(processor);
    ::setpriority(PRIO_PROCESS, 0, 19);
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    while (!stop) {
      if (deaf) ::pthread_sigmask(SIG_SETMASK, &all, &before);
      compute();
      runs = true;
      if (deaf) ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }
  });
  int unshared = 0;
  for (int round = 0; round < 4; ++round) {
    runs = false;
    while (!runs) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    char* memory = map_pages(2);
    unshared += share_in_use(device, memory, 2 * kPage) == kFlagShared ? 0 : 1;
    ::munmap(memory, 2 * kPage);
  }
  stop = true;
  starved.join();
  return unshared;
}

TEST(RegisteredMemory, AThreadThatWaitsForAProcessorIsWaitedFor) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs a change of user";
  EXPECT_EQ(
      as_nobody([](const Device& device) { return share_beside_a_starved_thread(device, false); }),
      0);
}

TEST(RegisteredMemory, AThreadThatBlocksSignalsForAMomentIsWaitedFor) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs a change of user";
  EXPECT_EQ(
      as_nobody([](const Device& device) { return share_beside_a_starved_thread(device, true); }),
      0);
}

bool main_thread_has_ended() {
  std::ifstream file("/proc/self/stat");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  return text.find(") Z ") != std::string::npos;
}

TEST(RegisteredMemory, AMainThreadThatHasEndedIsNoReasonToLeaveItUnshared) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs a change of user";
  EXPECT_EQ(as_nobody([](const Device& device) -> int {
              char* before = map_pages(2);
              if (share_in_use(device, before, 2 * kPage) != kFlagShared) return 3;
              std::thread([&device] {
                while (!main_thread_has_ended()) std::this_thread::yield();
                char* memory = map_pages(2);
                ::_exit(share_in_use(device, memory, 2 * kPage) == kFlagShared ? 0 : 1);
              }).detach();
              ::syscall(SYS_exit, 0);
              return 2;
            }),
            0);
}

}  // namespace
}  // namespace softhca::shim::test
