// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Times of a program alone with the engine, through libibverbs: both queue pairs are in this
// process. Run it under `softhca run`.
//   verbs_timing write|read SIZE ITERATIONS   median us from ibv_post_send to the polled completion
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

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

[[noreturn]] void fail(const char* what) {
  std::perror(what);
  std::exit(1);
}

char* map_memory(std::size_t size) {
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail("mmap");
  return static_cast<char*>(memory);
}

struct Hca {
  Hca() {
    ibv_device** list = ibv_get_device_list(nullptr);
    if (list == nullptr || list[0] == nullptr) fail("no device");
    context = ibv_open_device(list[0]);
    if (context == nullptr) fail("ibv_open_device");
    ibv_free_device_list(list);
    pd = ibv_alloc_pd(context);
    if (pd == nullptr || ibv_query_port(context, 1, &port) != 0) fail("ibv_alloc_pd");
  }
  ibv_context* context;
  ibv_pd* pd;
  ibv_port_attr port{};
};

void connect(const Hca& hca, ibv_qp* qp, std::uint32_t peer) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = kAccess;
  if (ibv_modify_qp(qp, &attr,
                    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) != 0) {
    fail("INIT");
  }
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_4096;
  attr.dest_qp_num = peer;
  attr.max_dest_rd_atomic = 1;
  attr.min_rnr_timer = 12;
  attr.ah_attr.dlid = hca.port.lid;
  attr.ah_attr.port_num = 1;
  if (ibv_modify_qp(qp, &attr,
                    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) != 0) {
    fail("RTR");
  }
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 14;
  attr.retry_cnt = 7;
  attr.rnr_retry = 7;
  attr.max_rd_atomic = 1;
  if (ibv_modify_qp(qp, &attr,
                    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                        IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) != 0) {
    fail("RTS");
  }
}

int time_operations(ibv_wr_opcode opcode, std::size_t size, int iterations) {
  const Hca hca;
  // Whole pages, as buffers of programs that care are.
  const std::size_t room = (2 * size + 4095) / 4096 * 4096;
  char* memory = map_memory(room);
  std::memset(memory, 1, room);
  ibv_mr* mr = ibv_reg_mr(hca.pd, memory, room, kAccess);
  ibv_cq* cq = ibv_create_cq(hca.context, 16, nullptr, nullptr, 0);
  if (mr == nullptr || cq == nullptr) fail("ibv_reg_mr, ibv_create_cq");
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq;
  init.qp_type = IBV_QPT_RC;
  init.cap = {8, 8, 1, 1, 0};
  ibv_qp* a = ibv_create_qp(hca.pd, &init);
  ibv_qp* b = ibv_create_qp(hca.pd, &init);
  if (a == nullptr || b == nullptr) fail("ibv_create_qp");
  connect(hca, a, b->qp_num);
  connect(hca, b, a->qp_num);

  ibv_sge sge{reinterpret_cast<std::uintptr_t>(memory), static_cast<std::uint32_t>(size), mr->lkey};
  ibv_send_wr request{};
  request.sg_list = &sge;
  request.num_sge = 1;
  request.opcode = opcode;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma.remote_addr = reinterpret_cast<std::uintptr_t>(memory) + size;
  request.wr.rdma.rkey = mr->rkey;
  std::vector<double> times;
  for (int i = 0; i < iterations; ++i) {
    ibv_send_wr* bad = nullptr;
    ibv_wc completion{};
    const auto start = Clock::now();
    if (ibv_post_send(a, &request, &bad) != 0) fail("ibv_post_send");
    int count = 0;
    while ((count = ibv_poll_cq(cq, 1, &completion)) == 0) {
    }
    times.push_back(microseconds_since(start));
    if (count < 0 || completion.status != IBV_WC_SUCCESS) fail("completion");
  }
  std::printf("%.3f\n", median(times));
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

int main(int argc, char** argv) {
  const std::size_t size = argc > 2 ? std::strtoull(argv[2], nullptr, 0) : 0;
  const int iterations = argc > 3 ? std::atoi(argv[3]) : 0;
  if (size != 0 && size <= (1U << 30)) {
    if (std::strcmp(argv[1], "registration") == 0) return time_registration(size);
    if (iterations > 0 && std::strcmp(argv[1], "write") == 0) {
      return time_operations(IBV_WR_RDMA_WRITE, size, iterations);
    }
    if (iterations > 0 && std::strcmp(argv[1], "read") == 0) {
      return time_operations(IBV_WR_RDMA_READ, size, iterations);
    }
  }
  std::fprintf(stderr, "usage: verbs_timing write|read SIZE ITERATIONS | registration SIZE\n");
  return 2;
}
