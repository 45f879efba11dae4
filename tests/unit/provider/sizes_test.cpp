// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <gtest/gtest.h>

#include <cerrno>

#include "provider/context.h"
#include "provider/qp.h"

namespace softhca::provider {
namespace {

DeviceLimits limits() {
  DeviceLimits limits;
  limits.max_sq_descriptor = 1024;
  limits.max_rq_descriptor = 512;
  limits.max_send_blocks = 32768;
  limits.max_recv_wr = 32768;
  limits.max_srq_recv_wr = 32767;
  return limits;
}

ibv_qp_init_attr_ex attributes(ibv_qp_type type, std::uint32_t send_wr, std::uint32_t send_sge,
                               std::uint32_t inlined, std::uint32_t recv_wr,
                               std::uint32_t recv_sge) {
  ibv_qp_init_attr_ex attr{};
  attr.qp_type = type;
  attr.cap = {send_wr, recv_wr, send_sge, recv_sge, inlined};
  return attr;
}

TEST(QueueSizes, SendRingIsAPowerOfTwoOfBasicBlocks) {
  QueueSizes sizes;
  ASSERT_EQ(
      compute_sizes(limits(), attributes(IBV_QPT_RC, 100, 1, 0, 0, 0), IBV_QP_EX_WITH_SEND, sizes),
      0);
  EXPECT_EQ(sizes.send_blocks, 128U);
  EXPECT_EQ(sizes.max_post, 128U);
  EXPECT_EQ(sizes.max_inline, 64U - 16 - 4);
}

TEST(QueueSizes, InlineDataWidensTheWqe) {
  QueueSizes sizes;
  ASSERT_EQ(compute_sizes(limits(), attributes(IBV_QPT_RC, 1, 1, 220, 0, 0),
                          IBV_QP_EX_WITH_RDMA_WRITE, sizes),
            0);
  EXPECT_GE(sizes.max_inline, 220U);
  EXPECT_EQ(sizes.send_blocks, 4U);
  EXPECT_EQ(sizes.max_post, 1U);
}

TEST(QueueSizes, EveryAllowedRequestFitsItsShareOfTheRing) {
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND}) {
    for (std::uint32_t sge = 0; sge <= 32; ++sge) {
      for (const std::uint32_t inlined : {0U, 1U, 60U, 220U, 512U}) {
        QueueSizes sizes;
        const int error = compute_sizes(limits(), attributes(type, 17, sge, inlined, 0, 0),
                                        operations_of(type), sizes);
        if (error != 0) continue;
        EXPECT_GE(sizes.max_post, 17U);
        EXPECT_GE(sizes.max_inline, inlined);
        EXPECT_EQ(sizes.send_blocks & (sizes.send_blocks - 1), 0U);
        EXPECT_GE(sizes.send_bytes() / sizes.max_post,
                  32 + sge * 16 + (type == IBV_QPT_UD ? 32 : 0));
      }
    }
  }
}

TEST(QueueSizes, WhatTheDeviceCannotDoIsRefused) {
  QueueSizes sizes;
  const std::uint64_t ops = operations_of(IBV_QPT_RC);
  EXPECT_EQ(compute_sizes(limits(), attributes(IBV_QPT_RC, 1, 1000, 0, 0, 0), ops, sizes), EINVAL);
  EXPECT_EQ(compute_sizes(limits(), attributes(IBV_QPT_RC, 1, 1, 2000, 0, 0), ops, sizes), EINVAL);
  EXPECT_EQ(compute_sizes(limits(), attributes(IBV_QPT_RC, 0xffffffff, 1, 0, 0, 0), ops, sizes),
            EINVAL);
  EXPECT_EQ(compute_sizes(limits(), attributes(IBV_QPT_RC, 1, 0xffffffff, 0, 0, 0), ops, sizes),
            EINVAL);
  EXPECT_EQ(compute_sizes(limits(), attributes(IBV_QPT_RC, 1, 1, 0, 0xffffffff, 1), ops, sizes),
            EINVAL);
  EXPECT_EQ(compute_sizes(limits(), attributes(IBV_QPT_RC, 1, 1, 0, 1, 0xffffffff), ops, sizes),
            EINVAL);
}

TEST(QueueSizes, ReceiveRingLeavesTheSendRingOnABasicBlock) {
  QueueSizes sizes;
  ASSERT_EQ(compute_sizes(limits(), attributes(IBV_QPT_UD, 1, 1, 0, 1, 1),
                          operations_of(IBV_QPT_UD), sizes),
            0);
  EXPECT_EQ(sizes.recv_bytes() % prm::kWqeBasicBlock, 0U);
  EXPECT_EQ(sizes.recv_stride_shift, 4U);
  ASSERT_EQ(compute_sizes(limits(), attributes(IBV_QPT_UD, 1, 1, 0, 100, 3),
                          operations_of(IBV_QPT_UD), sizes),
            0);
  EXPECT_EQ(sizes.recv_count, 128U);
  EXPECT_EQ(sizes.recv_max_sge, 4U);
}

TEST(QueueSizes, ASharedReceiveQueueReplacesTheReceiveRing) {
  QueueSizes sizes;
  ibv_qp_init_attr_ex attr = attributes(IBV_QPT_RC, 1, 1, 0, 0xffffffff, 0xffffffff);
  ibv_srq srq{};
  attr.srq = &srq;
  ASSERT_EQ(compute_sizes(limits(), attr, operations_of(IBV_QPT_RC), sizes), 0);
  EXPECT_EQ(sizes.recv_count, 0U);
}

}  // namespace
}  // namespace softhca::provider
