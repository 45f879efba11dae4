// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Posters in threads of their own against a device that goes to sleep as the engine does, whenever
// it has nothing to do: no doorbell is lost while the queue that is watched changes, or its record
// is mapped anew.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "hw-model/runtime/doorbell_hints.h"
#include "hw-model/transport/send_watch.h"
#include "tests/support/two_hosts.h"

namespace softhca::test {
namespace {

using namespace std::chrono_literals;
using SteadyClock = std::chrono::steady_clock;

constexpr std::uint32_t kStartPsn = 7;
constexpr unsigned kPosters = 2;
constexpr unsigned kQpsEach = 2;
constexpr int kPatienceMs = 20'000;

class SleepingDevice : public ::testing::Test {
 protected:
  struct Poster {
    DriverCq cq;
    std::array<DriverQp, kQpsEach> qps;
    std::uint64_t posts = 0;
    std::uint64_t unmarked = 0;
    bool lost = false;
  };

  SleepingDevice() : wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    function.attach_doorbell_hints(hints.get());
    request.opcode = prm::WqeOpcode::rdma_write;
    request.inline_data = {1, 2, 3, 4};
    request.remote_address = target.address;
    request.rkey = target.key;
    QpTimers timers;
    timers.ack_timeout = 0;  // A retry would look at the queue again.
    for (Poster& poster : posters) {
      poster.cq = driver.create_cq(8);
      for (DriverQp& qp : poster.qps) {
        qp = driver.create_qp(poster.cq, poster.cq);
        EXPECT_TRUE(driver.to_init(qp).ok() &&
                    driver.to_rtr(qp, qp.qpn, world.a->lid(), kStartPsn, 5, {}, timers).ok() &&
                    driver.to_rts(qp, kStartPsn, timers).ok());
      }
    }
  }
  ~SleepingDevice() override {
    function.attach_doorbell_hints(nullptr);
    ::close(wake);
  }

  void ring(Poster& poster, const DriverQp& qp) {
    const auto place = hints->sq.place_of(qp.qpn);
    if (hints->watched.load(std::memory_order_relaxed) == place.field) ++poster.unmarked;
    hints->ring_sq(place);
    wake_device();
  }
  void wake_device() {
    const std::uint64_t one = 1;
    if (hints->must_wake() && ::write(wake, &one, sizeof one) != sizeof one) std::abort();
  }

  void send(Poster& poster, DriverQp& qp) {
    driver.queue_send(qp, request);
    ring(poster, qp);
    ++poster.posts;
  }
  void collect(Poster& poster, unsigned waiting) {
    for (const auto limit = SteadyClock::now() + 10s; waiting != 0 && !poster.lost;) {
      if (driver.poll_cq(poster.cq)) {
        --waiting;
      } else if (SteadyClock::now() > limit) {
        poster.lost = true;
      }
    }
  }
  static void pause(unsigned rounds) {
    for (volatile unsigned left = rounds; left != 0;) left = left - 1;
  }
  /// Posts to one queue and another one now and then.
  void wander(Poster& poster, std::minstd_rand& random) {
    DriverQp& favourite = poster.qps[random() % kQpsEach];
    for (unsigned left = random() % 40; left != 0 && !poster.lost; --left) {
      const unsigned waiting = 1 + random() % 3 / 2;
      for (unsigned i = 0; i < waiting; ++i) {
        send(poster, random() % 16 == 0 ? poster.qps[random() % kQpsEach] : favourite);
      }
      collect(poster, waiting);
      pause(random() % 400);
    }
  }
  /// Makes the device watch one queue, then another, and posts to the first about then.
  void change(Poster& poster, std::minstd_rand& random) {
    DriverQp& before = poster.qps[random() % kQpsEach];
    DriverQp& after = &before == &poster.qps[0] ? poster.qps[1] : poster.qps[0];
    for (unsigned i = 0; i <= SendWatch::kHints && !poster.lost; ++i) {
      send(poster, before);
      collect(poster, 1);
    }
    for (unsigned i = 1; i < SendWatch::kHints && !poster.lost; ++i) {
      send(poster, after);
      collect(poster, 1);
    }
    send(poster, after);
    pause(random() % 128);
    send(poster, before);
    collect(poster, 2);
  }
  void post(Poster& poster, unsigned seed, bool alone, SteadyClock::time_point end) {
    std::minstd_rand random(seed);
    while (SteadyClock::now() < end && !poster.lost) {
      if (alone) {
        change(poster, random);
      } else {
        wander(poster, random);
      }
    }
  }

  /// As Engine::run(): works, looks a few times, says that it sleeps, looks once more, sleeps.
  void serve(unsigned seed) {
    std::minstd_rand random(seed);
    while (!stop) {
      bool active = function.rung();
      active |= world.fabric.step();
      active |= function.step({});
      if (!active && world.fabric.next_deadline() != kNever) {
        world.clock.advance_to(world.fabric.next_deadline());
        continue;
      }
      if (random() % 1024 == 0) map_elsewhere();
      for (unsigned looks = random() % 8; looks != 0 && !active; --looks) active = function.rung();
      if (active) continue;
      hints->engine_state.store(kEngineSleeping, std::memory_order_seq_cst);
      pollfd entry{wake, POLLIN, 0};
      if (!function.rung() && ::poll(&entry, 1, kPatienceMs) == 1) {
        std::uint64_t count = 0;
        if (::read(wake, &count, sizeof count) != sizeof count) std::abort();
        ++sleeps;
      }
      hints->engine_state.store(kEngineAwake, std::memory_order_seq_cst);
    }
  }
  void map_elsewhere() {
    DmaSpace::Range range;
    range.iova = 1ULL << 40;
    range.size = elsewhere.size();
    range.base = elsewhere.data();
    if (mapped) {
      EXPECT_EQ(function.dma().unmap(range.iova, range.size), std::errc{});
    } else {
      EXPECT_EQ(function.dma().map(range), std::errc{});
    }
    mapped = !mapped;
  }

  TwoHosts world;
  MiniDriver& driver = world.a->driver;
  Function& function = world.a->function;
  std::unique_ptr<DoorbellHints> hints = std::make_unique<DoorbellHints>();
  DriverMr target = driver.allocate_mr(64);
  SendRequest request;
  std::array<Poster, kPosters> posters;
  alignas(64) std::array<std::byte, 4096> elsewhere{};
  bool mapped = false;
  int wake;
  std::atomic<bool> stop{false};
  std::uint64_t sleeps = 0;
};

/// Parameters: threads that post.
class HearsEveryDoorbell : public SleepingDevice, public ::testing::WithParamInterface<unsigned> {};

TEST_P(HearsEveryDoorbell, WhileQueuesChange) {
  const char* seconds = std::getenv("SOFTHCA_WATCH_SECONDS");
  const char* seed_text = std::getenv("SOFTHCA_WATCH_SEED");
  const auto seed = static_cast<unsigned>(seed_text != nullptr ? std::atoi(seed_text) : 1);
  const auto end =
      SteadyClock::now() + std::chrono::seconds(seconds != nullptr ? std::atoi(seconds) : 1);
  std::thread device([&] { serve(seed); });
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < GetParam(); ++i) {
    threads.emplace_back(
        [&, i] { post(posters[i], seed * kPosters + i + 1, GetParam() == 1, end); });
  }
  for (std::thread& thread : threads) thread.join();
  stop = true;
  const std::uint64_t one = 1;
  EXPECT_EQ(::write(wake, &one, sizeof one), static_cast<ssize_t>(sizeof one));
  device.join();
  for (unsigned i = 0; i < GetParam(); ++i) {
    const Poster& poster = posters[i];
    EXPECT_FALSE(poster.lost) << "after " << poster.posts << " posts";
    EXPECT_GT(poster.unmarked, 0U);
    std::printf("%llu posts, %llu without a mark\n", static_cast<unsigned long long>(poster.posts),
                static_cast<unsigned long long>(poster.unmarked));
  }
  std::printf("the device slept %llu times\n", static_cast<unsigned long long>(sleeps));
}

INSTANTIATE_TEST_SUITE_P(Posters, HearsEveryDoorbell, ::testing::Values(1U, kPosters));

}  // namespace
}  // namespace softhca::test
