// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "tests/unit/provider/queue_fixture.h"

namespace softhca::provider {
namespace {

using prm::Cqe;
using prm::CqeOpcode;
using prm::CqeSyndrome;
using prm::ErrorCqe;

class CompletionTest : public testing::Test {
 protected:
  CompletionTest() : plain_(IBV_QPT_RC), index_(*plain_cq_.resources.insert(&plain_.qp.resource)) {}

  void post_sends(int count) {
    for (int i = 0; i < count; ++i) {
      ibv_send_wr wr{};
      wr.wr_id = 100 + static_cast<std::uint64_t>(i);
      wr.opcode = IBV_WR_SEND;
      ASSERT_EQ(plain_.post(wr), 0);
    }
  }
  void post_receives(int count) {
    for (int i = 0; i < count; ++i) {
      ibv_recv_wr wr{};
      wr.wr_id = 200 + static_cast<std::uint64_t>(i);
      ibv_recv_wr* bad = nullptr;
      ASSERT_EQ(post_recv(plain_.base(), &wr, &bad), 0);
    }
  }

  PlainQueuePair plain_;
  PlainCompletionQueue plain_cq_;
  std::uint32_t index_;
};

TEST_F(CompletionTest, EmptyQueueGivesNothing) {
  ibv_wc wc{};
  EXPECT_EQ(plain_cq_.poll(wc), 0);
}

TEST_F(CompletionTest, RequesterCompletionFreesAllUpToIt) {
  post_sends(3);
  plain_cq_.write(CqeOpcode::requester, index_, [](std::uint8_t* cqe) {
    Cqe::send_opcode::set(cqe, static_cast<unsigned>(prm::WqeOpcode::send));
    Cqe::qpn::set(cqe, PlainQueuePair::kQpn);
    Cqe::wqe_counter::set(cqe, 2);
  });
  ibv_wc wc{};
  ASSERT_EQ(plain_cq_.poll(wc), 1);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.wr_id, 102U);
  EXPECT_EQ(wc.opcode, IBV_WC_SEND);
  EXPECT_EQ(wc.qp_num, PlainQueuePair::kQpn);
  EXPECT_EQ(plain_.qp.sq.tail.load(), 3U);
  EXPECT_EQ(plain_cq_.record[0].get(), 1U);
}

TEST_F(CompletionTest, RequesterOpcodesBecomeVerbsOpcodes) {
  using prm::WqeOpcode;
  struct Case {
    ibv_wr_opcode posted;
    WqeOpcode opcode;
    ibv_wc_opcode wc_opcode;
  };
  const Case cases[] = {
      {IBV_WR_RDMA_WRITE, WqeOpcode::rdma_write, IBV_WC_RDMA_WRITE},
      {IBV_WR_RDMA_WRITE_WITH_IMM, WqeOpcode::rdma_write_imm, IBV_WC_RDMA_WRITE},
      {IBV_WR_SEND, WqeOpcode::send, IBV_WC_SEND},
      {IBV_WR_SEND_WITH_IMM, WqeOpcode::send_imm, IBV_WC_SEND},
      {IBV_WR_SEND_WITH_INV, WqeOpcode::send_invalidate, IBV_WC_SEND},
      {IBV_WR_RDMA_READ, WqeOpcode::rdma_read, IBV_WC_RDMA_READ},
      {IBV_WR_ATOMIC_CMP_AND_SWP, WqeOpcode::atomic_cmp_swap, IBV_WC_COMP_SWAP},
      {IBV_WR_ATOMIC_FETCH_AND_ADD, WqeOpcode::atomic_fetch_add, IBV_WC_FETCH_ADD},
      {IBV_WR_LOCAL_INV, WqeOpcode::umr, IBV_WC_LOCAL_INV},
  };
  for (const auto& [posted, opcode, wc_opcode] : cases) {
    const std::uint32_t counter = plain_.qp.sq.producer;
    ibv_send_wr wr{};
    wr.opcode = posted;
    ASSERT_EQ(plain_.post(wr), 0);
    plain_cq_.write(CqeOpcode::requester, index_, [&, sent = opcode](std::uint8_t* cqe) {
      Cqe::send_opcode::set(cqe, static_cast<unsigned>(sent));
      Cqe::wqe_counter::set(cqe, counter);
      Cqe::byte_count::set(cqe, 4096);
    });
    ibv_wc wc{};
    ASSERT_EQ(plain_cq_.poll(wc), 1);
    EXPECT_EQ(wc.opcode, wc_opcode) << static_cast<unsigned>(opcode);
    if (opcode == WqeOpcode::rdma_read) {
      EXPECT_EQ(wc.byte_len, 4096U);
    }
    if (wc_opcode == IBV_WC_COMP_SWAP || wc_opcode == IBV_WC_FETCH_ADD) {
      EXPECT_EQ(wc.byte_len, 8U);
    }
    const bool immediate = opcode == WqeOpcode::rdma_write_imm || opcode == WqeOpcode::send_imm;
    EXPECT_EQ(wc.wc_flags, immediate ? static_cast<unsigned>(IBV_WC_WITH_IMM) : 0U);
  }
}

TEST_F(CompletionTest, ReceiveCompletionsComeInPostingOrder) {
  post_receives(2);
  for (std::uint32_t i = 0; i < 2; ++i) {
    plain_cq_.write(CqeOpcode::responder_send_imm, index_, [&](std::uint8_t* cqe) {
      Cqe::byte_count::set(cqe, 50 + i);
      Cqe::immediate::set(cqe, 0x01020304);
    });
  }
  for (std::uint32_t i = 0; i < 2; ++i) {
    ibv_wc wc{};
    ASSERT_EQ(plain_cq_.poll(wc), 1);
    EXPECT_EQ(wc.wr_id, 200U + i);
    EXPECT_EQ(wc.opcode, IBV_WC_RECV);
    EXPECT_EQ(wc.byte_len, 50U + i);
    EXPECT_EQ(wc.wc_flags, static_cast<unsigned>(IBV_WC_WITH_IMM));
    EXPECT_EQ(be32toh(wc.imm_data), 0x01020304U);
  }
}

TEST_F(CompletionTest, DatagramCompletionTellsWhereItCameFrom) {
  post_receives(1);
  plain_cq_.write(CqeOpcode::responder_send, index_, [](std::uint8_t* cqe) {
    Cqe::source_lid::set(cqe, 0x11);
    Cqe::remote_qpn::set(cqe, 0x222);
    Cqe::service_level::set(cqe, 3);
    Cqe::grh::set(cqe, 1);
    Cqe::ml_path::set(cqe, 4);
    Cqe::immediate::set(cqe, 0x6);
  });
  ibv_wc wc{};
  ASSERT_EQ(plain_cq_.poll(wc), 1);
  EXPECT_EQ(wc.slid, 0x11);
  EXPECT_EQ(wc.src_qp, 0x222U);
  EXPECT_EQ(wc.sl, 3);
  EXPECT_EQ(wc.dlid_path_bits, 4);
  EXPECT_EQ(wc.pkey_index, 6);
  EXPECT_EQ(wc.wc_flags, static_cast<unsigned>(IBV_WC_GRH));
}

TEST_F(CompletionTest, SendWithInvalidateNamesTheKey) {
  post_receives(1);
  plain_cq_.write(CqeOpcode::responder_send_invalidate, index_,
                  [](std::uint8_t* cqe) { Cqe::immediate::set(cqe, 0xbeef); });
  ibv_wc wc{};
  ASSERT_EQ(plain_cq_.poll(wc), 1);
  EXPECT_EQ(wc.wc_flags, static_cast<unsigned>(IBV_WC_WITH_INV));
  EXPECT_EQ(wc.invalidated_rkey, 0xbeefU);
}

TEST_F(CompletionTest, SyndromesBecomeStatusesAndVendorCodesPassThrough) {
  const std::pair<CqeSyndrome, ibv_wc_status> expected[] = {
      {CqeSyndrome::local_length, IBV_WC_LOC_LEN_ERR},
      {CqeSyndrome::local_qp_operation, IBV_WC_LOC_QP_OP_ERR},
      {CqeSyndrome::local_protection, IBV_WC_LOC_PROT_ERR},
      {CqeSyndrome::flushed, IBV_WC_WR_FLUSH_ERR},
      {CqeSyndrome::memory_window_bind, IBV_WC_MW_BIND_ERR},
      {CqeSyndrome::bad_response, IBV_WC_BAD_RESP_ERR},
      {CqeSyndrome::local_access, IBV_WC_LOC_ACCESS_ERR},
      {CqeSyndrome::remote_invalid_request, IBV_WC_REM_INV_REQ_ERR},
      {CqeSyndrome::remote_access, IBV_WC_REM_ACCESS_ERR},
      {CqeSyndrome::remote_operation, IBV_WC_REM_OP_ERR},
      {CqeSyndrome::transport_retry_exceeded, IBV_WC_RETRY_EXC_ERR},
      {CqeSyndrome::rnr_retry_exceeded, IBV_WC_RNR_RETRY_EXC_ERR},
      {CqeSyndrome::remote_aborted, IBV_WC_REM_ABORT_ERR},
      {static_cast<CqeSyndrome>(0x7f), IBV_WC_GENERAL_ERR},
  };
  for (const auto& [syndrome, status] : expected) {
    post_sends(1);
    const std::uint32_t counter = plain_.qp.sq.producer - 1;
    plain_cq_.write(CqeOpcode::requester_error, index_, [&, told = syndrome](std::uint8_t* cqe) {
      ErrorCqe::syndrome::set(cqe, static_cast<unsigned>(told));
      ErrorCqe::vendor_syndrome::set(cqe, 0x88);
      Cqe::qpn::set(cqe, PlainQueuePair::kQpn);
      Cqe::wqe_counter::set(cqe, counter);
    });
    ibv_wc wc{};
    ASSERT_EQ(plain_cq_.poll(wc), 1);
    EXPECT_EQ(wc.status, status) << static_cast<unsigned>(syndrome);
    EXPECT_EQ(wc.vendor_err, 0x88U);
    EXPECT_EQ(wc.wr_id, 100U);
    EXPECT_EQ(wc.qp_num, PlainQueuePair::kQpn);
  }
}

TEST_F(CompletionTest, FlushedReceivesTakeTheirPlaceInTheQueue) {
  post_receives(2);
  for (int i = 0; i < 2; ++i) {
    plain_cq_.write(CqeOpcode::responder_error, index_, [](std::uint8_t* cqe) {
      ErrorCqe::syndrome::set(cqe, static_cast<unsigned>(CqeSyndrome::flushed));
      ErrorCqe::vendor_syndrome::set(cqe, prm::VendorSyndrome::flushed);
    });
  }
  ibv_wc wc[2] = {};
  ASSERT_EQ(poll_cq(&plain_cq_.cq.verbs.cq, 2, wc), 2);
  EXPECT_EQ(wc[0].wr_id, 200U);
  EXPECT_EQ(wc[1].wr_id, 201U);
  EXPECT_EQ(wc[1].status, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(CompletionTest, OwnerBitTurnsWithEveryPass) {
  ibv_wc wc{};
  for (int pass = 0; pass < 40; ++pass) {
    EXPECT_EQ(plain_cq_.poll(wc), 0) << "a CQE of the pass before is not taken again";
    post_receives(1);
    plain_cq_.write(CqeOpcode::responder_send, index_);
    ASSERT_EQ(plain_cq_.poll(wc), 1) << pass;
  }
  EXPECT_EQ(plain_cq_.record[0].get(), 40U);
}

TEST_F(CompletionTest, WideEntriesHoldTheCqeInTheirUpperHalf) {
  PlainCompletionQueue wide(4, prm::kCqeSize128);
  const std::uint32_t index = *wide.resources.insert(&plain_.qp.resource);
  for (int i = 0; i < 6; ++i) {
    post_receives(1);
    wide.write(CqeOpcode::responder_send, index);
    ibv_wc wc{};
    ASSERT_EQ(wide.poll(wc), 1);
  }
  const auto* third = reinterpret_cast<const std::uint8_t*>(wide.cq.cqe(2));
  EXPECT_EQ(third - wide.cq.entries, 2 * 128 + 64);
}

TEST_F(CompletionTest, UnknownUserIndexIsAnErrorNotACrash) {
  plain_cq_.write(CqeOpcode::requester, 0x123456);
  ibv_wc wc{};
  EXPECT_LT(plain_cq_.poll(wc), 0);
  EXPECT_EQ(plain_cq_.poll(wc), 0);
}

TEST_F(CompletionTest, ArmCarriesSerialNumberAndConsumerIndex) {
  post_receives(1);
  plain_cq_.write(CqeOpcode::responder_send, index_);
  ibv_wc wc{};
  ASSERT_EQ(plain_cq_.poll(wc), 1);
  ASSERT_EQ(req_notify_cq(&plain_cq_.cq.verbs.cq, 1), 0);
  const auto* record = reinterpret_cast<const std::uint8_t*>(plain_cq_.record);
  EXPECT_EQ(prm::CqDoorbellRecord::arm_sn::get(record), 1U);
  EXPECT_EQ(prm::CqDoorbellRecord::arm_command::get(record), prm::CqArmCommand::next_solicited);
  EXPECT_EQ(prm::CqDoorbellRecord::arm_consumer_index::get(record), 1U);
  const std::uint8_t* doorbell = plain_cq_.page() + prm::Uar::cq_arm;
  EXPECT_EQ(prm::CqDoorbell::cqn::get(doorbell), PlainCompletionQueue::kCqn);
  EXPECT_EQ(std::memcmp(doorbell, record + 4, 4), 0);

  cq_event(&plain_cq_.cq.verbs.cq);
  req_notify_cq(&plain_cq_.cq.verbs.cq, 0);
  EXPECT_EQ(prm::CqDoorbellRecord::arm_sn::get(record), 2U);
  EXPECT_EQ(prm::CqDoorbellRecord::arm_command::get(record), prm::CqArmCommand::next);
}

TEST_F(CompletionTest, CleaningDropsOnlyTheCqesOfOneQueuePair) {
  PlainQueuePair other(IBV_QPT_RC);
  const std::uint32_t other_index = *plain_cq_.resources.insert(&other.qp.resource);
  post_receives(2);
  for (int i = 0; i < 2; ++i) {
    ibv_recv_wr wr{};
    wr.wr_id = 300 + static_cast<std::uint64_t>(i);
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(post_recv(other.base(), &wr, &bad), 0);
  }
  plain_cq_.write(CqeOpcode::responder_send, other_index);
  plain_cq_.write(CqeOpcode::responder_send, index_);
  plain_cq_.write(CqeOpcode::responder_send, other_index);
  plain_cq_.write(CqeOpcode::responder_send, index_);

  clean(plain_cq_.cq, index_, nullptr);
  EXPECT_EQ(plain_cq_.record[0].get(), 2U);
  ibv_wc wc{};
  ASSERT_EQ(plain_cq_.poll(wc), 1);
  EXPECT_EQ(wc.wr_id, 300U);
  ASSERT_EQ(plain_cq_.poll(wc), 1);
  EXPECT_EQ(wc.wr_id, 301U);
  EXPECT_EQ(plain_cq_.poll(wc), 0);
}

TEST_F(CompletionTest, CleaningReturnsSharedReceiveEntries) {
  SharedReceiveQueue srq;
  AlignedMemory memory(4 * 64);
  prm::Be32 record[2]{};
  srq.ring.start = memory.data();
  srq.ring.count = 4;
  srq.ring.stride_shift = 6;
  srq.ring.wr_ids = std::make_unique<std::uint64_t[]>(4);
  srq.ring.record = record;
  srq.ring.initialize();
  plain_.qp.srq = &srq;
  ibv_recv_wr wr{};
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(srq.ring.post(&wr, &bad), 0);
  plain_cq_.write(CqeOpcode::responder_send, index_,
                  [](std::uint8_t* cqe) { Cqe::wqe_counter::set(cqe, 0); });
  clean(plain_cq_.cq, index_, &srq);
  EXPECT_EQ(srq.ring.tail, 0U);
}

TEST_F(CompletionTest, ResizeKeepsUnreadCompletions) {
  post_receives(4);
  for (std::uint32_t i = 0; i < 3; ++i) {
    plain_cq_.write(CqeOpcode::responder_send, index_,
                    [&](std::uint8_t* cqe) { Cqe::byte_count::set(cqe, 10 + i); });
  }
  ibv_wc wc{};
  ASSERT_EQ(plain_cq_.poll(wc), 1);
  plain_cq_.write(CqeOpcode::resize_cq, 0);  // takes one index: the device goes on at index 4

  AlignedMemory larger(16 * prm::kCqeSize64);
  initialize_entries(larger.data(), 16, prm::kCqeSize64);
  std::uint8_t* old_entries = plain_cq_.cq.entries;
  const std::uint32_t old_count = plain_cq_.cq.count;
  plain_cq_.cq.set_ring(larger.data(), 16);
  ASSERT_TRUE(copy_resized(plain_cq_.cq, old_entries, old_count));
  plain_cq_.write(CqeOpcode::responder_send, index_,
                  [](std::uint8_t* cqe) { Cqe::byte_count::set(cqe, 13); });
  for (std::uint32_t i = 1; i < 4; ++i) {
    ASSERT_EQ(plain_cq_.poll(wc), 1) << i;
    EXPECT_EQ(wc.byte_len, 10U + i);
  }
  EXPECT_EQ(plain_cq_.poll(wc), 0);
  EXPECT_EQ(plain_cq_.record[0].get(), 5U);
}

TEST_F(CompletionTest, ResizeWithoutItsMarkIsNoticed) {
  AlignedMemory larger(16 * prm::kCqeSize64);
  initialize_entries(larger.data(), 16, prm::kCqeSize64);
  std::uint8_t* old_entries = plain_cq_.cq.entries;
  plain_cq_.cq.set_ring(larger.data(), 16);
  EXPECT_FALSE(copy_resized(plain_cq_.cq, old_entries, 8));
}

}  // namespace
}  // namespace softhca::provider
