// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "tests/unit/provider/queue_fixture.h"

namespace softhca::provider {
namespace {

using prm::CtrlSegment;
using prm::DataSegment;

/// The builder and ibv_post_send must write the same bytes: the ring after each is compared.
void expect_same_ring(PlainQueuePair& posted, PlainQueuePair& built) {
  EXPECT_EQ(posted.qp.sq.producer, built.qp.sq.producer);
  EXPECT_EQ(posted.record[1].get(), built.record[1].get());
  EXPECT_EQ(std::memcmp(posted.ring(), built.ring(), posted.ring_size()), 0);
}

TEST(SendBuilder, WriteWithImmediateEqualsPostSend) {
  PlainQueuePair posted(IBV_QPT_RC);
  PlainQueuePair built(IBV_QPT_RC);
  ibv_sge sge{0x1000, 64, 5};
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  wr.send_flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.imm_data = 0x04030201;
  wr.wr.rdma.remote_addr = 0x9000;
  wr.wr.rdma.rkey = 77;
  ASSERT_EQ(posted.post(wr), 0);

  ibv_qp_ex* qp = built.ex();
  ibv_wr_start(qp);
  qp->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED;
  ibv_wr_rdma_write_imm(qp, 77, 0x9000, 0x04030201);
  ibv_wr_set_sge(qp, 5, 0x1000, 64);
  ASSERT_EQ(ibv_wr_complete(qp), 0);
  expect_same_ring(posted, built);
}

TEST(SendBuilder, AtomicEqualsPostSend) {
  PlainQueuePair posted(IBV_QPT_RC);
  PlainQueuePair built(IBV_QPT_RC);
  ibv_sge sge{0x1000, 8, 5};
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.wr.atomic = {0x9000, 1, 2, 77};
  ASSERT_EQ(posted.post(wr), 0);
  ibv_qp_ex* qp = built.ex();
  ibv_wr_start(qp);
  qp->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_atomic_cmp_swp(qp, 77, 0x9000, 1, 2);
  ibv_wr_set_sge(qp, 5, 0x1000, 8);
  ASSERT_EQ(ibv_wr_complete(qp), 0);
  expect_same_ring(posted, built);
}

TEST(SendBuilder, DatagramEqualsPostSend) {
  PlainQueuePair posted(IBV_QPT_UD);
  PlainQueuePair built(IBV_QPT_UD);
  AddressHandle ah;
  ibv_ah_attr attr{};
  attr.dlid = 9;
  fill_vector(ah.vector, attr);
  ibv_sge sge{0x1000, 32, 5};
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.wr.ud = {&ah.ah, 0x123, 0x456};
  ASSERT_EQ(posted.post(wr), 0);
  ibv_qp_ex* qp = built.ex();
  ibv_wr_start(qp);
  qp->wr_flags = 0;
  ibv_wr_send(qp);
  ibv_wr_set_ud_addr(qp, &ah.ah, 0x123, 0x456);
  ibv_wr_set_sge(qp, 5, 0x1000, 32);
  ASSERT_EQ(ibv_wr_complete(qp), 0);
  expect_same_ring(posted, built);
}

TEST(SendBuilder, InlineListEqualsPostSend) {
  PlainQueuePair posted(IBV_QPT_RC);
  PlainQueuePair built(IBV_QPT_RC);
  std::string a = "first part";
  std::string b = "second part of the data";
  ibv_sge list[] = {
      {reinterpret_cast<std::uintptr_t>(a.data()), static_cast<std::uint32_t>(a.size()), 0},
      {reinterpret_cast<std::uintptr_t>(b.data()), static_cast<std::uint32_t>(b.size()), 0}};
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_INLINE;
  wr.sg_list = list;
  wr.num_sge = 2;
  ASSERT_EQ(posted.post(wr), 0);
  const ibv_data_buf buffers[] = {{a.data(), a.size()}, {b.data(), b.size()}};
  ibv_qp_ex* qp = built.ex();
  ibv_wr_start(qp);
  qp->wr_flags = 0;
  ibv_wr_send(qp);
  ibv_wr_set_inline_data_list(qp, 2, buffers);
  ASSERT_EQ(ibv_wr_complete(qp), 0);
  expect_same_ring(posted, built);
}

TEST(SendBuilder, BatchRingsOnceWithAllRequests) {
  PlainQueuePair plain(IBV_QPT_RC);
  ibv_qp_ex* qp = plain.ex();
  ibv_wr_start(qp);
  for (std::uint64_t i = 0; i < 3; ++i) {
    qp->wr_id = 100 + i;
    qp->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_send(qp);
    ibv_wr_set_sge(qp, 1, 0x1000, 8);
    EXPECT_EQ(plain.record[1].get(), 0U) << "nothing is told to the device before ibv_wr_complete";
  }
  ASSERT_EQ(ibv_wr_complete(qp), 0);
  EXPECT_EQ(plain.record[1].get(), 3U);
  EXPECT_EQ(plain.qp.sq.slot(2).wr_id, 102U);
  EXPECT_EQ(std::memcmp(plain.page() + prm::Uar::blue_flame, plain.block(2), 8), 0);
}

TEST(SendBuilder, ARequestWithoutDataNeedsNoSetter) {
  PlainQueuePair plain(IBV_QPT_RC);
  ibv_qp_ex* qp = plain.ex();
  ibv_wr_start(qp);
  qp->wr_flags = 0;
  ibv_wr_send(qp);
  ASSERT_EQ(ibv_wr_complete(qp), 0);
  EXPECT_EQ(CtrlSegment::ds_count::get(plain.block(0)), 1U);
}

TEST(SendBuilder, AbortLeavesTheQueueAsItWas) {
  PlainQueuePair plain(IBV_QPT_RC);
  ibv_qp_ex* qp = plain.ex();
  ibv_wr_start(qp);
  qp->wr_flags = 0;
  ibv_wr_send(qp);
  ibv_wr_local_inv(qp, 5);
  ibv_wr_abort(qp);
  EXPECT_EQ(plain.qp.sq.producer, 0U);
  EXPECT_EQ(plain.qp.sq.head, 0U);
  EXPECT_EQ(plain.qp.sq.next_fence, 0U);
  EXPECT_EQ(plain.record[1].get(), 0U);
  ibv_wr_start(qp);  // the lock is free again
  ibv_wr_send(qp);
  EXPECT_EQ(ibv_wr_complete(qp), 0);
  EXPECT_EQ(plain.record[1].get(), 1U);
}

TEST(SendBuilder, OverflowFailsTheWholeBatch) {
  PlainQueuePair plain(IBV_QPT_RC, 4);
  ibv_qp_ex* qp = plain.ex();
  ibv_wr_start(qp);
  qp->wr_flags = 0;
  for (int i = 0; i < 5; ++i) ibv_wr_send(qp);
  EXPECT_EQ(ibv_wr_complete(qp), ENOMEM);
  EXPECT_EQ(plain.qp.sq.producer, 0U);
  EXPECT_EQ(plain.record[1].get(), 0U);
}

TEST(SendBuilder, InlineBeyondTheLimitFailsTheWholeBatch) {
  PlainQueuePair plain(IBV_QPT_RC);
  std::vector<char> bytes(plain.qp.sq.max_inline + 1);
  ibv_qp_ex* qp = plain.ex();
  ibv_wr_start(qp);
  qp->wr_flags = 0;
  ibv_wr_send(qp);
  ibv_wr_set_inline_data(qp, bytes.data(), bytes.size());
  ibv_wr_send(qp);
  EXPECT_EQ(ibv_wr_complete(qp), ENOMEM);
  EXPECT_EQ(plain.qp.sq.producer, 0U);
}

TEST(SendBuilder, NothingIsBuiltBeforeReadyToSend) {
  PlainQueuePair plain(IBV_QPT_RC);
  plain.qp.can_send = false;
  ibv_qp_ex* qp = plain.ex();
  ibv_wr_start(qp);
  ibv_wr_send(qp);
  EXPECT_EQ(ibv_wr_complete(qp), EINVAL);
}

TEST(SendBuilder, XrcNamesTheRemoteSrqAfterTheControlSegment) {
  PlainQueuePair plain(IBV_QPT_XRC_SEND);
  ibv_qp_ex* qp = plain.ex();
  ibv_wr_start(qp);
  qp->wr_flags = 0;
  ibv_wr_rdma_write(qp, 7, 0x9000);
  ibv_wr_set_xrc_srqn(qp, 0x345);
  ibv_wr_set_sge(qp, 1, 0x1000, 8);
  ASSERT_EQ(ibv_wr_complete(qp), 0);
  const std::uint8_t* wqe = plain.block(0);
  EXPECT_EQ(CtrlSegment::ds_count::get(wqe), 4U);
  EXPECT_EQ(prm::XrcSegment::srqn::get(wqe + 16), 0x345U);
  EXPECT_EQ(prm::RemoteAddressSegment::rkey::get(wqe + 32), 7U);
  EXPECT_EQ(DataSegment::byte_count::get(wqe + 48), 8U);
}

}  // namespace
}  // namespace softhca::provider
