// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "provider/abi/driver.h"
#include "provider/pages.h"
#include "provider/receive_queue.h"
#include "provider/resource_table.h"

namespace softhca::provider {

/// A shared receive queue, basic or XRC. `verbs` must stay first.
struct SharedReceiveQueue {
  abi::verbs_srq verbs{};
  Resource resource;
  SharedReceiveRing ring;
  bool has_resource = false;  ///< XRC: completions name it by user_index.
  QueuePages pages;
  std::uint32_t srqn = 0;

  static SharedReceiveQueue* of(ibv_srq* srq) { return reinterpret_cast<SharedReceiveQueue*>(srq); }
  static SharedReceiveQueue* of(Resource* resource) {
    return reinterpret_cast<SharedReceiveQueue*>(reinterpret_cast<char*>(resource) -
                                                 offsetof(SharedReceiveQueue, resource));
  }
};

ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr* attr);
ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* attr);
int modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int mask);
int query_srq(ibv_srq* srq, ibv_srq_attr* attr);
int destroy_srq(ibv_srq* srq);
int get_srq_num(ibv_srq* srq, std::uint32_t* number);
int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad);

}  // namespace softhca::provider
