// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <gtest/gtest.h>

#include <cerrno>

#include "tests/unit/provider/queue_fixture.h"

namespace softhca::provider {
namespace {

using prm::Cqe;
using prm::CqeOpcode;

class ExtendedPollingTest : public testing::Test {
 protected:
  ExtendedPollingTest()
      : plain_(IBV_QPT_RC), index_(*plain_cq_.resources.insert(&plain_.qp.resource)) {}
  void receive(std::uint32_t bytes) {
    ibv_recv_wr wr{};
    wr.wr_id = bytes;
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(post_recv(plain_.base(), &wr, &bad), 0);
    plain_cq_.write(CqeOpcode::responder_send_imm, index_, [&](std::uint8_t* cqe) {
      Cqe::byte_count::set(cqe, bytes);
      Cqe::qpn::set(cqe, PlainQueuePair::kQpn);
      Cqe::immediate::set(cqe, 0xa0b0c0d0);
      Cqe::remote_qpn::set(cqe, 0x55);
      Cqe::source_lid::set(cqe, 9);
      Cqe::service_level::set(cqe, 2);
    });
  }

  PlainQueuePair plain_;
  PlainCompletionQueue plain_cq_;
  std::uint32_t index_;
  ibv_poll_cq_attr attr_{};
};

TEST_F(ExtendedPollingTest, EmptyQueueIsENOENTAndNeedsNoEnd) {
  ibv_cq_ex* cq = &plain_cq_.cq.verbs.cq_ex;
  EXPECT_EQ(ibv_start_poll(cq, &attr_), ENOENT);
  EXPECT_EQ(ibv_start_poll(cq, &attr_), ENOENT);
}

TEST_F(ExtendedPollingTest, ReadersShowTheCurrentCompletion) {
  ibv_cq_ex* cq = &plain_cq_.cq.verbs.cq_ex;
  receive(70);
  receive(71);
  ASSERT_EQ(ibv_start_poll(cq, &attr_), 0);
  EXPECT_EQ(cq->wr_id, 70U);
  EXPECT_EQ(cq->status, IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_wc_read_opcode(cq), IBV_WC_RECV);
  EXPECT_EQ(ibv_wc_read_byte_len(cq), 70U);
  EXPECT_EQ(be32toh(ibv_wc_read_imm_data(cq)), 0xa0b0c0d0U);
  EXPECT_EQ(ibv_wc_read_qp_num(cq), PlainQueuePair::kQpn);
  EXPECT_EQ(ibv_wc_read_src_qp(cq), 0x55U);
  EXPECT_EQ(ibv_wc_read_slid(cq), 9U);
  EXPECT_EQ(ibv_wc_read_sl(cq), 2);
  EXPECT_EQ(ibv_wc_read_wc_flags(cq), static_cast<unsigned>(IBV_WC_WITH_IMM));
  ASSERT_EQ(ibv_next_poll(cq), 0);
  EXPECT_EQ(cq->wr_id, 71U);
  EXPECT_EQ(ibv_next_poll(cq), ENOENT);
  EXPECT_EQ(plain_cq_.record[0].get(), 0U) << "the consumer index moves at ibv_end_poll";
  ibv_end_poll(cq);
  EXPECT_EQ(plain_cq_.record[0].get(), 2U);
  ibv_wc wc{};
  EXPECT_EQ(plain_cq_.poll(wc), 0) << "the lock is free again";
}

TEST_F(ExtendedPollingTest, UnknownAttributesAreRefused) {
  attr_.comp_mask = 1;
  EXPECT_EQ(ibv_start_poll(&plain_cq_.cq.verbs.cq_ex, &attr_), EINVAL);
}

}  // namespace
}  // namespace softhca::provider
