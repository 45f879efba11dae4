// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Baseline: two threads hand a word to each other by polling one cache line each, the floor of any
// exchange between two processors.
//   memory_pingpong [ITERATIONS]      prints one line: median half round trip in microseconds
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

struct alignas(64) Line {
  std::atomic<unsigned> word{0};
};

}  // namespace

int main(int argc, char** argv) {
  constexpr int kBatch = 64;  // Reading the clock costs as much as a hop.
  const int batches = (argc > 1 ? std::atoi(argv[1]) : 200000) / kBatch;
  if (batches < 1) {
    std::fprintf(stderr, "usage: memory_pingpong [ITERATIONS(64..)]\n");
    return 2;
  }
  static Line there;
  static Line back;
  std::thread peer([batches] {
    const auto last = static_cast<unsigned>(batches * kBatch);
    for (unsigned i = 1; i <= last; ++i) {
      while (there.word.load(std::memory_order_acquire) != i) {
      }
      back.word.store(i, std::memory_order_release);
    }
  });
  std::vector<double> times;
  unsigned number = 0;
  for (int batch = 0; batch < batches; ++batch) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kBatch; ++i) {
      there.word.store(++number, std::memory_order_release);
      while (back.word.load(std::memory_order_acquire) != number) {
      }
    }
    const std::chrono::duration<double, std::micro> elapsed =
        std::chrono::steady_clock::now() - start;
    times.push_back(elapsed.count() / kBatch / 2);
  }
  peer.join();
  std::nth_element(times.begin(), times.begin() + static_cast<long>(times.size() / 2), times.end());
  std::printf("%.4f\n", times[times.size() / 2]);
  return 0;
}
