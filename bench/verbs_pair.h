// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <infiniband/verbs.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "bench/fail.h"

/// Two connected RC queue pairs of one process, for the programs that measure libibverbs. What
/// fails ends the program.
namespace softhca::bench {

inline constexpr int kAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

inline char* map_memory(std::size_t size) {
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail("mmap");
  return static_cast<char*>(memory);
}

/// The first device, opened.
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

inline void connect(const Hca& hca, ibv_qp* qp, std::uint32_t peer) {
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

/// What a Pair is made with.
struct PairOptions {
  ibv_qp_cap cap = {8, 8, 1, 1, 0};
  bool builder = false;  ///< Queue pairs for ibv_wr_*.
  bool events = false;   ///< A completion channel.
};

/// Both ends, one completion queue, and registered memory: `size` bytes that are read or sent,
/// followed by as many that are written.
struct Pair {
  explicit Pair(std::size_t size, const PairOptions& options = {}) {
    // Whole pages, as buffers of programs that care are.
    const std::size_t room = (2 * size + 4095) / 4096 * 4096;
    memory = map_memory(room);
    std::memset(memory, 1, room);
    mr = ibv_reg_mr(hca.pd, memory, room, kAccess);
    if (options.events) channel = ibv_create_comp_channel(hca.context);
    cq = ibv_create_cq(hca.context, 16, nullptr, channel, 0);
    if (mr == nullptr || cq == nullptr) fail("ibv_reg_mr, ibv_create_cq");
    a = create(options);
    b = create(options);
    connect(hca, a, b->qp_num);
    connect(hca, b, a->qp_num);
    sge = {reinterpret_cast<std::uintptr_t>(memory), static_cast<std::uint32_t>(size), mr->lkey};
    remote = reinterpret_cast<std::uintptr_t>(memory) + size;
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  /// A signalled RDMA operation on all of the memory, from `a`.
  ibv_send_wr request(ibv_wr_opcode opcode) {
    ibv_send_wr wr{};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = remote;
    wr.wr.rdma.rkey = mr->rkey;
    return wr;
  }

  Hca hca;
  char* memory;
  ibv_mr* mr;
  ibv_comp_channel* channel = nullptr;
  ibv_cq* cq;
  ibv_qp* a;
  ibv_qp* b;
  ibv_sge sge{};
  std::uint64_t remote;

 private:
  ibv_qp* create(const PairOptions& options) const {
    ibv_qp_init_attr_ex init{};
    init.send_cq = init.recv_cq = cq;
    init.qp_type = IBV_QPT_RC;
    init.cap = options.cap;
    init.pd = hca.pd;
    init.comp_mask = IBV_QP_INIT_ATTR_PD;
    if (options.builder) {
      init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
      init.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE;
    }
    ibv_qp* qp = ibv_create_qp_ex(hca.context, &init);
    if (qp == nullptr) fail("ibv_create_qp_ex");
    return qp;
  }
};

}  // namespace softhca::bench
