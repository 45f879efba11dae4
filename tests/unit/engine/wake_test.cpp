// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// No doorbell is lost between the engine's polling and its sleep. The device is attached without
// mapped UARs, so that no sweep can make up for a lost wake-up.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <thread>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hw-model/runtime/doorbell_hints.h"
#include "tests/unit/engine/running_engine.h"

namespace softhca::emulator {
namespace {

using namespace std::chrono_literals;

class WakeTest : public testing::Test {
 protected:
  void SetUp() override { map_hints(); }

  void map_hints() {
    auto region = device_->region_info(kDoorbellHintsRegionIndex);
    ASSERT_TRUE(region) << region.error().message;
    void* base = ::mmap(nullptr, kDoorbellHintsSize, PROT_READ | PROT_WRITE, MAP_SHARED,
                        region->fd.get(), static_cast<off_t>(region->fd_offset));
    ASSERT_NE(base, MAP_FAILED);
    hints_ = static_cast<DoorbellHints*>(base);
    auto fds = device_->region_io_fds(kDoorbellHintsRegionIndex);
    ASSERT_TRUE(fds) << fds.error().message;
    ASSERT_EQ(fds->size(), 1U);
    wake_ = std::move(fds->front().fd);
  }

  void ring(std::uint32_t number) {
    hints_->sq.mark(number);
    if (!hints_->must_wake()) return;
    const std::uint64_t one = 1;
    ASSERT_EQ(::write(wake_.get(), &one, sizeof(one)), static_cast<ssize_t>(sizeof(one)));
  }
  template <typename Condition>
  static bool soon(Condition condition) {
    const auto end = std::chrono::steady_clock::now() + 20s;
    while (!condition()) {
      if (std::chrono::steady_clock::now() >= end) return false;
      std::this_thread::yield();
    }
    return true;
  }

  test::RunningEngine engine_;
  std::unique_ptr<vfio_user::Client> device_ = engine_.attach("alpha");
  DoorbellHints* hints_ = nullptr;
  vfio_user::FileDescriptor wake_;
};

TEST_F(WakeTest, an_idle_engine_says_that_it_sleeps_and_a_doorbell_wakes_it) {
  ASSERT_TRUE(soon([this] { return hints_->engine_state == kEngineSleeping; }));
  ring(5);
  EXPECT_TRUE(soon([this] { return !hints_->sq.any(); })) << "the doorbell was not taken";
  EXPECT_TRUE(soon([this] { return hints_->engine_state == kEngineSleeping; }))
      << "the engine does not go back to sleep";
}

TEST_F(WakeTest, no_doorbell_is_lost_whenever_it_comes) {
  std::minstd_rand random(7);
  // Around the engine's idle spin, so that many fall into its way to sleep.
  std::uniform_int_distribution<int> pause_us(0, 120);
  const auto enough = std::chrono::steady_clock::now() + 5s;
  for (int i = 0; i < 20'000 && std::chrono::steady_clock::now() < enough; ++i) {
    ring(static_cast<std::uint32_t>(i % 4096));
    ASSERT_TRUE(soon([this] { return !hints_->sq.any(); })) << "lost doorbell " << i;
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(pause_us(random));
    while (std::chrono::steady_clock::now() < end) {
    }
  }
}

TEST_F(WakeTest, registers_are_answered_while_doorbells_keep_the_engine_busy) {
  std::atomic<bool> stop = false;
  std::thread ringer([this, &stop] {
    for (std::uint32_t i = 0; !stop; ++i) {
      ring(i % 64);
      std::this_thread::yield();
    }
  });
  auto slowest = 0ns;
  for (int i = 0; i < 200; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const auto value = device_->read_register<std::uint32_t>(vfio_user::kRegionBar0, 0);
    slowest = std::max<std::chrono::nanoseconds>(slowest, std::chrono::steady_clock::now() - begin);
    EXPECT_TRUE(value) << value.error().message;
  }
  stop = true;
  ringer.join();
  EXPECT_LT(slowest, 2s);
}

}  // namespace
}  // namespace softhca::emulator
