// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// No doorbell and no interrupt is lost: hundreds of QPs of several threads share UAR pages, and
// rest for times of random length. The environment sets how long a case is and its seed:
// SOFTHCA_STRESS_POSTS, SOFTHCA_STRESS_SECONDS (what comes first), SOFTHCA_STRESS_SEED.
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/stress/remote_hca.h"
#include "tests/stress/worker.h"

namespace softhca::test {
namespace {

constexpr unsigned kWorkers = 2;
constexpr unsigned kUars = 4;
constexpr std::uint16_t kFirstVector = MiniDriver::kCompletionVector + 1;
constexpr std::uint64_t kMemory = 64ULL << 20;

std::uint64_t setting(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 0) : otherwise;
}

class DoorbellStress : public testing::TestWithParam<Doorbells> {};

TEST_P(DoorbellStress, nothing_is_lost) {
  const std::uint64_t posts = setting("SOFTHCA_STRESS_POSTS", 200'000);
  const std::chrono::seconds limit(setting("SOFTHCA_STRESS_SECONDS", 4));
  const std::uint64_t seed = setting("SOFTHCA_STRESS_SEED", 1);
  RemoteHca hca(GetParam(), kMemory, kFirstVector + kWorkers);
  std::vector<std::uint32_t> uars;
  for (unsigned i = 0; i < kUars; ++i) uars.push_back(hca.driver().allocate_uar());
  std::vector<std::unique_ptr<Worker>> workers;
  for (unsigned i = 0; i < kWorkers; ++i) {
    workers.push_back(std::make_unique<Worker>(
        hca, uars, static_cast<std::uint16_t>(kFirstVector + i), seed * kWorkers + i));
  }
  std::barrier round(kWorkers);
  std::atomic<bool> failed = false;
  const auto end = std::chrono::steady_clock::now() + limit;
  std::vector<std::thread> threads;
  for (auto& worker : workers) {
    threads.emplace_back([&] { worker->run(posts / kWorkers, end, round, failed); });
  }
  for (std::thread& thread : threads) thread.join();
  if (GetParam() == Doorbells::hinted) {
    EXPECT_GT(hca.watched_rings(), 0U);
    std::cout << hca.watched_rings() << " doorbells of the queue that is watched\n";
  }
  for (const auto& worker : workers) {
    EXPECT_EQ(worker->failure(), "") << "seed " << seed;
    std::cout << worker->posts() << " posts in " << worker->rounds() << " rounds, "
              << worker->sleeps() << " interrupts\n";
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, DoorbellStress,
                         testing::Values(Doorbells::trapped, Doorbells::mapped, Doorbells::hinted),
                         [](const auto& info) {
                           return std::string(info.param == Doorbells::trapped  ? "trapped"
                                              : info.param == Doorbells::mapped ? "mapped"
                                                                                : "hinted");
                         });

}  // namespace
}  // namespace softhca::test
