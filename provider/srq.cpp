// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/srq.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <memory>
#include <new>

#include "provider/abi/commands.h"
#include "provider/context.h"
#include "provider/cq.h"
#include "provider/domains.h"

namespace softhca::provider {
namespace {

/// Entry indexes are 16 bits wide.
constexpr std::uint32_t kMaxEntries = 1U << 16;
constexpr std::uint32_t kMinStride = 32;

/// Rings, record and sizes for `attr`; 0 or an errno.
int prepare(Context& context, SharedReceiveQueue& srq, ibv_pd* pd, const ibv_srq_attr& attr) {
  const DeviceLimits& limits = context.limits;
  constexpr auto kLink = static_cast<std::uint32_t>(prm::NextSegment::size);
  constexpr auto kEntry = static_cast<std::uint32_t>(prm::DataSegment::size);
  if (attr.max_wr > limits.max_srq_recv_wr) return EINVAL;
  if (limits.max_rq_descriptor < kLink ||
      attr.max_sge > (limits.max_rq_descriptor - kLink) / kEntry) {
    return EINVAL;
  }
  const std::uint32_t stride = std::bit_ceil(std::max(kMinStride, kLink + attr.max_sge * kEntry));
  const std::uint32_t count = std::bit_ceil(std::max(attr.max_wr, 1U) + 1);
  if (stride > limits.max_rq_descriptor || count > kMaxEntries) return EINVAL;

  ProtectionDomain* domain = ProtectionDomain::of(pd);
  SharedReceiveRing& ring = srq.ring;
  ring.count = count;
  ring.stride_shift = static_cast<std::uint32_t>(std::countr_zero(stride));
  ring.max_sge = (stride - kLink) / kEntry;
  ring.lock.set_needed(domain->thread_domain == nullptr);
  if (!srq.pages.allocate(static_cast<std::size_t>(count) * stride, domain->allocator,
                          AllocationType::srq)) {
    return errno;
  }
  ring.start = srq.pages.data();
  ring.initialize();
  ring.wr_ids.reset(new (std::nothrow) std::uint64_t[count]);
  if (ring.wr_ids == nullptr) return ENOMEM;
  ring.record = context.records.allocate();
  return ring.record == nullptr ? ENOMEM : 0;
}

mlx5_ib_create_srq driver_part(const SharedReceiveQueue& srq) {
  mlx5_ib_create_srq driver{};
  driver.buf_addr = reinterpret_cast<std::uintptr_t>(srq.pages.data());
  driver.db_addr = reinterpret_cast<std::uintptr_t>(srq.ring.record);
  driver.uidx = srq.has_resource ? srq.resource.user_index : 0xffffff;
  return driver;
}

int create_basic(SharedReceiveQueue& srq, ibv_pd* pd, ibv_srq_init_attr& attr) {
  abi::CreateSrq command;
  abi::CreateSrqResponse response;
  command.driver = driver_part(srq);
  attr.attr.max_wr = srq.ring.count - 1;
  attr.attr.max_sge = srq.ring.max_sge;
  const int error = abi::ibv_cmd_create_srq(pd, &srq.verbs.srq, &attr, &command, sizeof(command),
                                            &response, sizeof(response));
  srq.srqn = response.driver.srqn;
  return error;
}

int create_xrc(Context& context, SharedReceiveQueue& srq, ibv_srq_init_attr_ex& attr) {
  abi::CreateXsrq command;
  abi::CreateSrqResponse response;
  command.driver = driver_part(srq);
  attr.attr.max_wr = srq.ring.count - 1;
  attr.attr.max_sge = srq.ring.max_sge;
  const int error = abi::ibv_cmd_create_srq_ex(&context.verbs.context, &srq.verbs, &attr, &command,
                                               sizeof(command), &response, sizeof(response));
  srq.srqn = response.driver.srqn;
  return error;
}

void release(Context& context, SharedReceiveQueue& srq) {
  if (srq.has_resource) context.resources.erase(srq.resource.user_index);
  context.records.release(srq.ring.record);
}

/// Common to both kinds: prepares, calls `create`, and reports what the application may use.
template <typename Create>
ibv_srq* create(Context& context, ibv_pd* pd, ibv_srq_attr& attr, bool with_resource,
                Create create_kernel) {
  std::unique_ptr<SharedReceiveQueue> srq(new (std::nothrow) SharedReceiveQueue);
  if (srq == nullptr || pd == nullptr) {
    errno = srq == nullptr ? ENOMEM : EINVAL;
    return nullptr;
  }
  int error = prepare(context, *srq, pd, attr);
  if (error == 0 && with_resource) {
    srq->resource.kind = Resource::Kind::shared_receive_queue;
    srq->has_resource = context.resources.insert(&srq->resource).has_value();
    if (!srq->has_resource) error = ENOMEM;
  }
  if (error == 0) error = create_kernel(*srq);
  if (error != 0) {
    release(context, *srq);
    errno = error;
    return nullptr;
  }
  // libibverbs does so after ibv_create_srq(), but not after ibv_create_srq_ex().
  srq->verbs.srq.pd = pd;
  attr.max_wr = srq->ring.count - 1;
  attr.max_sge = srq->ring.max_sge;
  ProtectionDomain::of(pd)->users.fetch_add(1, std::memory_order_relaxed);
  return &srq.release()->verbs.srq;
}

}  // namespace

ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) {
  return create(*Context::of(pd->context), pd, attr->attr, false,
                [&](SharedReceiveQueue& srq) { return create_basic(srq, pd, *attr); });
}

ibv_srq* create_srq_ex(ibv_context* base, ibv_srq_init_attr_ex* attr) {
  if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) == 0 || attr->srq_type == IBV_SRQT_BASIC) {
    if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) == 0) {
      errno = EINVAL;
      return nullptr;
    }
    // The basic structure is a prefix of the extended one.
    return create_srq(attr->pd, reinterpret_cast<ibv_srq_init_attr*>(attr));
  }
  constexpr std::uint32_t kNeeded =
      IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  if (attr->srq_type != IBV_SRQT_XRC || (attr->comp_mask & kNeeded) != kNeeded) {
    errno = attr->srq_type != IBV_SRQT_XRC ? EOPNOTSUPP : EINVAL;
    return nullptr;
  }
  Context& context = *Context::of(base);
  return create(context, attr->pd, attr->attr, true,
                [&](SharedReceiveQueue& srq) { return create_xrc(context, srq, *attr); });
}

int modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int mask) {
  abi::ModifySrq command;
  return abi::ibv_cmd_modify_srq(srq, attr, mask, &command, sizeof(command));
}

int query_srq(ibv_srq* srq, ibv_srq_attr* attr) {
  abi::QuerySrq command;
  return abi::ibv_cmd_query_srq(srq, attr, &command, sizeof(command));
}

int destroy_srq(ibv_srq* base) {
  SharedReceiveQueue* srq = SharedReceiveQueue::of(base);
  Context& context = *Context::of(base->context);
  ibv_pd* pd = base->pd;
  ibv_cq* cq = srq->has_resource ? srq->verbs.cq : nullptr;
  if (const int error = abi::ibv_cmd_destroy_srq(base); error != 0) return error;
  if (cq != nullptr) clean(*CompletionQueue::of(cq), srq->resource.user_index, nullptr);
  release(context, *srq);
  delete srq;  // Gives memory back to the domain's allocator, so the domain comes after it.
  ProtectionDomain::of(pd)->users.fetch_sub(1, std::memory_order_release);
  return 0;
}

int get_srq_num(ibv_srq* base, std::uint32_t* number) {
  const SharedReceiveQueue* srq = SharedReceiveQueue::of(base);
  if (srq->verbs.srq_type != IBV_SRQT_XRC) return EINVAL;
  *number = srq->srqn;
  return 0;
}

int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  return SharedReceiveQueue::of(srq)->ring.post(wr, bad);
}

}  // namespace softhca::provider
