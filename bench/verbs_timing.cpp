// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Times of a program alone with the engine, through libibverbs: both queue pairs are in this
// process. Run it under `softhca run`.
//   verbs_timing write|read SIZE ITERATIONS [QPS]
//                                             us from ibv_post_send to the polled completion:
//                                             median and mean, beside so many connected QPs that do
//                                             nothing
//   verbs_timing registration SIZE            us: first touch of memory, its first registration,
//   and
//                                             the next ones (medians)
#include <infiniband/verbs.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "bench/verbs_pair.h"

namespace softhca::bench {
namespace {

using Clock = std::chrono::steady_clock;
double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

/// Connected to themselves.
void create_idle_qps(const Pair& pair, int count) {
  for (int i = 0; i < count; ++i) {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = pair.cq;
    init.qp_type = IBV_QPT_RC;
    init.cap = {1, 1, 1, 1, 0};
    ibv_qp* qp = ibv_create_qp(pair.hca.pd, &init);
    if (qp == nullptr) fail("ibv_create_qp");
    connect(pair.hca, qp, qp->qp_num);
  }
}

int time_operations(ibv_wr_opcode opcode, std::size_t size, int iterations, int idle_qps) {
  Pair pair(size);
  create_idle_qps(pair, idle_qps);
  ibv_send_wr request = pair.request(opcode);
  std::vector<double> times;
  times.reserve(static_cast<std::size_t>(iterations));
  const auto begin = Clock::now();
  for (int i = 0; i < iterations; ++i) {
    ibv_send_wr* bad = nullptr;
    ibv_wc completion{};
    const auto start = Clock::now();
    if (ibv_post_send(pair.a, &request, &bad) != 0) fail("ibv_post_send");
    int count = 0;
    while ((count = ibv_poll_cq(pair.cq, 1, &completion)) == 0) {
    }
    times.push_back(microseconds_since(start));
    if (count < 0 || completion.status != IBV_WC_SUCCESS) fail("completion");
  }
  const double mean = microseconds_since(begin) / iterations;
  std::printf("%.3f %.3f\n", median(times), mean);
  return 0;
}

int time_registration(std::size_t size) {
  constexpr int kRounds = 15;
  const Hca hca;
  std::vector<double> touch;
  std::vector<double> first;
  std::vector<double> again;
  for (int round = 0; round < kRounds; ++round) {
    char* memory = map_memory(size);
    auto start = Clock::now();
    for (std::size_t at = 0; at < size; at += 4096) memory[at] = 1;
    touch.push_back(microseconds_since(start));
    for (std::vector<double>* times : {&first, &again, &again}) {
      start = Clock::now();
      ibv_mr* mr = ibv_reg_mr(hca.pd, memory, size, kAccess);
      times->push_back(microseconds_since(start));
      if (mr == nullptr || ibv_dereg_mr(mr) != 0) fail("ibv_reg_mr");
    }
    munmap(memory, size);
  }
  std::printf("%.1f %.1f %.1f\n", median(touch), median(first), median(again));
  return 0;
}

}  // namespace
}  // namespace softhca::bench

int main(int argc, char** argv) {
  using namespace softhca::bench;
  const std::size_t size = argc > 2 ? std::strtoull(argv[2], nullptr, 0) : 0;
  const int iterations = argc > 3 ? std::atoi(argv[3]) : 0;
  if (size != 0 && size <= (1U << 30)) {
    if (std::strcmp(argv[1], "registration") == 0) return time_registration(size);
    const int idle_qps = argc > 4 ? std::atoi(argv[4]) : 0;
    if (iterations > 0 && std::strcmp(argv[1], "write") == 0) {
      return time_operations(IBV_WR_RDMA_WRITE, size, iterations, idle_qps);
    }
    if (iterations > 0 && std::strcmp(argv[1], "read") == 0) {
      return time_operations(IBV_WR_RDMA_READ, size, iterations, idle_qps);
    }
  }
  std::fprintf(stderr,
               "usage: verbs_timing write|read SIZE ITERATIONS [QPS] | registration SIZE\n");
  return 2;
}
