// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "provider/abi/driver.h"
#include "provider/pages.h"
#include "provider/receive_queue.h"
#include "provider/resource_table.h"
#include "provider/send_queue.h"
#include "provider/srq.h"

namespace softhca::provider {

/// State of the ibv_wr_* builder between ibv_wr_start and ibv_wr_complete.
struct SendBuilder {
  WqeWriter writer;
  prm::WqeOpcode opcode = prm::WqeOpcode::nop;
  bool open = false;  ///< A WQE is begun and not finished.
  bool used_inline = false;
  int error = 0;  ///< First failure; the batch is then rolled back.
  std::uint32_t count = 0;
  std::uint32_t producer = 0;  ///< Values at ibv_wr_start.
  std::uint8_t next_fence = 0;
};

/// A queue pair. `verbs` must stay first: libibverbs hands out pointers to it.
struct QueuePair {
  abi::verbs_qp verbs{};
  Resource resource;
  SendQueue sq;
  ReceiveQueue rq;
  SharedReceiveQueue* srq = nullptr;
  SendBuilder builder;
  bool can_send = false;  ///< By the state that the application asked for last.
  bool can_receive = false;
  bool has_resource = false;
  QueuePages pages;
  prm::Be32* record = nullptr;

  static QueuePair* of(ibv_qp* qp) { return reinterpret_cast<QueuePair*>(qp); }
  static QueuePair* of(ibv_qp_ex* qp) { return reinterpret_cast<QueuePair*>(qp); }
  static QueuePair* of(Resource* resource) {
    return reinterpret_cast<QueuePair*>(reinterpret_cast<char*>(resource) -
                                        offsetof(QueuePair, resource));
  }
};

ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* attr);
ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attr);
ibv_qp* open_qp(ibv_context* context, ibv_qp_open_attr* attr);
int modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask);
int query_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init_attr);
int destroy_qp(ibv_qp* qp);
int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad);
/// post_send() of who holds the send queue's lock, which is given back.
int post_held(QueuePair& qp, ibv_send_wr* wr, ibv_send_wr** bad);
int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad);
int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind);

/// Sizes of a queue pair's rings for what the application asked for.
struct QueueSizes {
  std::uint32_t send_blocks = 0;
  std::uint32_t max_post = 0;
  std::uint32_t max_inline = 0;
  std::uint32_t recv_count = 0;
  std::uint32_t recv_stride_shift = 0;
  std::uint32_t recv_max_sge = 0;

  std::size_t send_bytes() const {
    return static_cast<std::size_t>(send_blocks) * prm::kWqeBasicBlock;
  }
  std::size_t recv_bytes() const {
    return static_cast<std::size_t>(recv_count) << recv_stride_shift;
  }
};
struct DeviceLimits;
/// 0 and the sizes, or the errno when a limit is exceeded. `operations`: IBV_QP_EX_WITH_* that may
/// be posted.
int compute_sizes(const DeviceLimits& limits, const ibv_qp_init_attr_ex& attr,
                  std::uint64_t operations, QueueSizes& sizes);
/// Operations that a QP of this type may post, all of them; 0: type not supported.
std::uint64_t operations_of(ibv_qp_type type);

/// Installs the ibv_wr_* functions.
void install_builder(QueuePair& qp);

}  // namespace softhca::provider
