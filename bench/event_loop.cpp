// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// How the engine may sleep: epoll (what it does) beside io_uring, for what the engine sleeps for.
//   WakeUp:   an application writes the wake eventfd, the engine wakes and answers. One round trip;
//   the other side,
//             which blocks in read(), is the same for all.
//   Control:  a request of 64 bytes on a control socket and its reply.
//   Look:     nothing is there: what a busy engine pays for looking.
// Arguments: 0 both sides on one core, 1 on two. Compare within one run, interleaved:
//   bench_event_loop --benchmark_enable_random_interleaving=true --benchmark_repetitions=9
#include <benchmark/benchmark.h>
#include <liburing.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <thread>
#include <utility>

#include "emulator/runtime/unique_fd.h"

namespace {

using softhca::runtime::UniqueFd;

constexpr unsigned kOthers =
    4;  ///< Descriptors that an engine watches beside the one that matters.
constexpr std::uint64_t kStop = 1ULL << 32;
constexpr std::size_t kMessage = 64;

void pin_to(unsigned core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core % std::thread::hardware_concurrency(), &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

UniqueFd make_eventfd() {
  UniqueFd fd(::eventfd(0, EFD_CLOEXEC));
  if (!fd) throw std::runtime_error("eventfd");
  return fd;
}

void add(int fd, std::uint64_t value) {
  if (::write(fd, &value, sizeof value) != sizeof value) std::abort();
}

std::uint64_t take(int fd) {
  std::uint64_t value = 0;
  if (::read(fd, &value, sizeof value) != sizeof value) std::abort();
  return value;
}

/// An epoll set as the engine's.
class EpollLoop {
 public:
  explicit EpollLoop(int fd, std::uint32_t flags = 0) : set_(::epoll_create1(EPOLL_CLOEXEC)) {
    for (UniqueFd& other : others_) {
      other = make_eventfd();
      watch(other.get(), EPOLLIN);
    }
    watch(fd, EPOLLIN | flags);
  }
  int wait(int timeout) {
    std::array<epoll_event, 16> events;
    return ::epoll_wait(set_.get(), events.data(), events.size(), timeout);
  }

 private:
  void watch(int fd, std::uint32_t what) {
    epoll_event event{};
    event.events = what;
    event.data.fd = fd;
    if (::epoll_ctl(set_.get(), EPOLL_CTL_ADD, fd, &event) != 0) throw std::runtime_error("epoll");
  }
  UniqueFd set_;
  std::array<UniqueFd, kOthers> others_;
};

/// A ring with the settings that a single-threaded engine would choose: completions are worked out
/// when it waits, in its own thread, and a flag in memory says that there are some.
class Ring {
 public:
  Ring() {
    io_uring_params params{};
    params.flags =
        IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG;
    if (io_uring_queue_init_params(64, &ring_, &params) != 0) throw std::runtime_error("io_uring");
    for (UniqueFd& other : others_) {
      other = make_eventfd();
      poll_multishot(other.get());
    }
  }
  ~Ring() { io_uring_queue_exit(&ring_); }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  void poll_multishot(int fd) {
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    io_uring_prep_poll_multishot(sqe, fd, POLLIN);
    io_uring_sqe_set_data64(sqe, static_cast<std::uint64_t>(fd));
  }
  void read(int fd, void* to, unsigned size) {
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    io_uring_prep_read(sqe, fd, to, size, 0);
    io_uring_sqe_set_data64(sqe, static_cast<std::uint64_t>(fd));
  }
  void receive(int fd, void* to, std::size_t size) {
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    io_uring_prep_recv(sqe, fd, to, size, 0);
    io_uring_sqe_set_data64(sqe, 1);
  }
  void send(int fd, const void* from, std::size_t size) {
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    io_uring_prep_send(sqe, fd, from, size, 0);
    io_uring_sqe_set_data64(sqe, 2);
    sqe->flags |= IOSQE_CQE_SKIP_SUCCESS;
  }
  /// Submits what was prepared and waits; the result of the first completion, all are taken.
  int wait() {
    if (io_uring_submit_and_wait(&ring_, 1) < 0) std::abort();
    io_uring_cqe* cqe = nullptr;
    if (io_uring_peek_cqe(&ring_, &cqe) != 0) std::abort();
    const int result = cqe->res;
    unsigned head = 0;
    unsigned seen = 0;
    io_uring_for_each_cqe(&ring_, head, cqe)++ seen;
    io_uring_cq_advance(&ring_, seen);
    return result;
  }
  void submit() { io_uring_submit(&ring_); }
  /// True if there is anything: no system call.
  bool look() {
    const bool to_run =
        (__atomic_load_n(ring_.sq.kflags, __ATOMIC_ACQUIRE) & IORING_SQ_TASKRUN) != 0;
    return to_run || io_uring_cq_ready(&ring_) != 0;
  }

 private:
  io_uring ring_{};
  std::array<UniqueFd, kOthers> others_;
};

// ---- wake-up: the sleeper answers each write of `wake` by one of `answer`, until kStop comes

using Sleeper = std::function<void(int wake, int answer)>;

void epoll_and_read(int wake, int answer) {
  EpollLoop loop(wake);
  add(answer, 1);
  while (loop.wait(-1) >= 0) {
    const std::uint64_t value = take(wake);
    add(answer, 1);
    if (value >= kStop) return;
  }
}

/// The counter is read at the end only: an edge wakes whether or not it was read.
void epoll_edge(int wake, int answer) {
  EpollLoop loop(wake, EPOLLET);
  add(answer, 1);
  std::uint64_t woken = 0;
  while (loop.wait(-1) >= 0) {
    const bool stop = ++woken % 1024 == 0 && take(wake) >= kStop;
    add(answer, 1);
    if (stop) return;
  }
}

void uring_poll_multishot(int wake, int answer) {
  Ring ring;
  ring.poll_multishot(wake);
  ring.submit();
  add(answer, 1);
  std::uint64_t woken = 0;
  while (true) {
    ring.wait();
    const bool stop = ++woken % 1024 == 0 && take(wake) >= kStop;
    add(answer, 1);
    if (stop) return;
  }
}

void uring_read(int wake, int answer) {
  Ring ring;
  add(answer, 1);
  while (true) {
    std::uint64_t value = 0;
    ring.read(wake, &value, sizeof value);
    if (ring.wait() != sizeof value) std::abort();
    add(answer, 1);
    if (value >= kStop) return;
  }
}

void wake_up(benchmark::State& state, const Sleeper& sleeper) {
  const UniqueFd wake = make_eventfd();
  const UniqueFd answer = make_eventfd();
  const auto other_core = static_cast<unsigned>(state.range(0));
  pin_to(0);
  std::thread thread([&] {
    pin_to(other_core);
    sleeper(wake.get(), answer.get());
  });
  take(answer.get());  // it is about to sleep
  std::uint64_t rounds = 0;
  for (auto _ : state) {
    add(wake.get(), 1);
    take(answer.get());
    ++rounds;
  }
  // Those that read now and then only do so at multiples of 1024.
  while (true) {
    const bool last = ++rounds % 1024 == 0;
    add(wake.get(), last ? kStop : 1);
    take(answer.get());
    if (last) break;
  }
  thread.join();
}

// ---- a request on a socket and its reply

using Server = std::function<void(int socket)>;

void epoll_server(int socket) {
  EpollLoop loop(socket);
  std::array<char, kMessage> message{};
  while (loop.wait(-1) >= 0) {
    const ssize_t got = ::recv(socket, message.data(), message.size(), MSG_DONTWAIT);
    if (got <= 0) return;
    if (::send(socket, message.data(), static_cast<std::size_t>(got), MSG_DONTWAIT) != got) return;
  }
}

void uring_server(int socket) {
  Ring ring;
  std::array<char, kMessage> message{};
  std::array<char, kMessage> reply{};
  ring.receive(socket, message.data(), message.size());
  while (true) {
    const int got = ring.wait();
    if (got <= 0) return;
    reply = message;
    ring.send(socket, reply.data(), static_cast<std::size_t>(got));
    ring.receive(socket, message.data(), message.size());
  }
}

void control(benchmark::State& state, const Server& server) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
  UniqueFd client(ends[0]);
  const UniqueFd served(ends[1]);
  const auto other_core = static_cast<unsigned>(state.range(0));
  pin_to(0);
  std::thread thread([&] {
    pin_to(other_core);
    server(served.get());
  });
  std::array<char, kMessage> message{};
  for (auto _ : state) {
    if (::send(client.get(), message.data(), message.size(), 0) != kMessage) std::abort();
    if (::recv(client.get(), message.data(), message.size(), MSG_WAITALL) != kMessage) std::abort();
  }
  ::shutdown(client.get(), SHUT_WR);
  thread.join();
}

// ---- a look at nothing

void look_by_epoll(benchmark::State& state) {
  const UniqueFd wake = make_eventfd();
  EpollLoop loop(wake.get());
  for (auto _ : state) benchmark::DoNotOptimize(loop.wait(0));
}

void look_by_uring(benchmark::State& state) {
  const UniqueFd wake = make_eventfd();
  Ring ring;
  ring.poll_multishot(wake.get());
  ring.submit();
  for (auto _ : state) benchmark::DoNotOptimize(ring.look());
}

BENCHMARK_CAPTURE(wake_up, epoll_and_read, epoll_and_read)->Arg(0)->Arg(1)->UseRealTime();
BENCHMARK_CAPTURE(wake_up, epoll_edge, epoll_edge)->Arg(0)->Arg(1)->UseRealTime();
BENCHMARK_CAPTURE(wake_up, uring_poll_multishot, uring_poll_multishot)
    ->Arg(0)
    ->Arg(1)
    ->UseRealTime();
BENCHMARK_CAPTURE(wake_up, uring_read, uring_read)->Arg(0)->Arg(1)->UseRealTime();
BENCHMARK_CAPTURE(control, epoll, epoll_server)->Arg(0)->Arg(1)->UseRealTime();
BENCHMARK_CAPTURE(control, uring, uring_server)->Arg(0)->Arg(1)->UseRealTime();
BENCHMARK(look_by_epoll);
BENCHMARK(look_by_uring);

}  // namespace

BENCHMARK_MAIN();
