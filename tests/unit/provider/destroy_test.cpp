// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Destruction of queues, with a kernel that says yes to everything.
#include <gtest/gtest.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#include <cstdarg>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "provider/context.h"
#include "provider/cq.h"
#include "provider/domains.h"
#include "provider/qp.h"
#include "provider/srq.h"

/// In place of the C library's, also for libibverbs: zeroes the responses of destroy methods, whose
/// other attributes are handles.
extern "C" int ioctl(int /*fd*/, unsigned long request, ...) noexcept {
  va_list arguments;
  va_start(arguments, request);
  const auto* call = va_arg(arguments, const ib_uverbs_ioctl_hdr*);
  va_end(arguments);
  for (unsigned i = 0; i < call->num_attrs; ++i) {
    const ib_uverbs_attr& attribute = call->attrs[i];
    if (attribute.len != 0) std::memset(reinterpret_cast<void*>(attribute.data), 0, attribute.len);
  }
  return 0;
}

namespace softhca::provider {
namespace {

/// A parent domain whose allocator notes how many users the domain has when memory is given back.
class DestroyTest : public testing::Test {
 protected:
  DestroyTest() : context_(std::make_unique<Context>()), private_part_(kPrivateSize) {
    context_->verbs.priv = reinterpret_cast<verbs_ex_private*>(private_part_.data());
    context_->verbs.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
    domain_.contained = &inner_;
    domain_.users = 1;
    domain_.allocator = {&domain_.pd, this, allocate, release};
  }

  static void* allocate(ibv_pd* /*pd*/, void* /*context*/, std::size_t size, std::size_t alignment,
                        std::uint64_t /*type*/) {
    return std::aligned_alloc(alignment, size);
  }
  static void release(ibv_pd* pd, void* context, void* memory, std::uint64_t /*type*/) {
    static_cast<DestroyTest*>(context)->users_at_release_ = ProtectionDomain::of(pd)->users;
    std::free(memory);
  }
  template <typename Queue>
  void give_memory(Queue& queue, AllocationType type) {
    ASSERT_TRUE(queue.pages.allocate(4096, domain_.allocator, type));
  }
  void expect_domain_released_last() {
    EXPECT_EQ(users_at_release_, 1U) << "the allocator is the domain's";
    EXPECT_EQ(domain_.users, 0U);
  }
  ibv_context* base() { return &context_->verbs.context; }

  static constexpr std::size_t kPrivateSize = 8192;
  std::unique_ptr<Context> context_;
  std::vector<std::byte> private_part_;  ///< libibverbs' own, zeroed.
  ProtectionDomain inner_;
  ProtectionDomain domain_;
  unsigned users_at_release_ = 99;
};

TEST_F(DestroyTest, AParentDomainIsInUseUntilAQueuePairHasGivenItsMemoryBack) {
  auto* qp = new QueuePair;
  qp->verbs.qp.context = base();
  qp->verbs.qp.pd = &domain_.pd;
  qp->record = context_->records.allocate();
  give_memory(*qp, AllocationType::qp);
  ASSERT_EQ(destroy_qp(&qp->verbs.qp), 0);
  expect_domain_released_last();
}

TEST_F(DestroyTest, AParentDomainIsInUseUntilACompletionQueueHasGivenItsMemoryBack) {
  auto* cq = new CompletionQueue;
  cq->verbs.cq.context = base();
  cq->parent_domain = &domain_.pd;
  cq->record = context_->records.allocate();
  give_memory(*cq, AllocationType::cq);
  ASSERT_EQ(destroy_cq(&cq->verbs.cq), 0);
  expect_domain_released_last();
}

TEST_F(DestroyTest, AParentDomainIsInUseUntilASharedReceiveQueueHasGivenItsMemoryBack) {
  auto* srq = new SharedReceiveQueue;
  srq->verbs.srq.context = base();
  srq->verbs.srq.pd = &domain_.pd;
  srq->ring.record = context_->records.allocate();
  give_memory(*srq, AllocationType::srq);
  ASSERT_EQ(destroy_srq(&srq->verbs.srq), 0);
  expect_domain_released_last();
}

}  // namespace
}  // namespace softhca::provider
