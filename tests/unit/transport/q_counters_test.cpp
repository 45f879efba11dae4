// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <gtest/gtest.h>

#include "hw-model/ib/opcodes.h"
#include "tests/support/transport_pair.h"

// What a counter set of queue pairs counts, and what it does not (PRM QUERY_Q_COUNTER).
namespace softhca::transport_test {
namespace {

using prm::WqeOpcode;

class QCountersTest : public ::testing::Test {
 protected:
  Completion wait(TestCq& cq) {
    std::optional<Completion> completion;
    EXPECT_TRUE(pair.run_until([&] { return (completion = cq.poll()).has_value(); }))
        << "no completion came";
    return completion.value_or(Completion{});
  }
  void drop_nth(unsigned n, std::function<bool(const ib::Packet&)> matches) {
    pair.fate = [n, matches, seen = 0U](ib::Packet& packet) mutable {
      PacketFate what;
      what.drop = matches(packet) && seen++ == n;
      return what;
    };
  }
  SendRequest remote(WqeOpcode opcode, std::uint32_t size) {
    return {.opcode = opcode,
            .sges = size == 0 ? std::vector<Sge>{} : std::vector{qps.a_sge(0, size)},
            .remote_address = qps.b_buffer,
            .rkey = qps.b_key,
            .swap_add = 1};
  }
  const QCounters& at_a() { return a_set->counters; }
  const QCounters& at_b() { return b_set->counters; }

  TransportPair pair;
  QCounterSet* a_set = pair.a.transport.create_q_counters(0);
  QCounterSet* b_set = pair.b.transport.create_q_counters(0);
  ConnectedQps qps{pair, {}, 10, [this](TestQp& a, TestQp& b) {
                     a.attributes.counter_set_id = static_cast<std::uint8_t>(a_set->number);
                     b.attributes.counter_set_id = static_cast<std::uint8_t>(b_set->number);
                   }};
};

TEST_F(QCountersTest, RequestsAreCountedOnceEach) {
  qps.a.post_send(remote(WqeOpcode::rdma_write, 50'000));
  qps.a.post_send(remote(WqeOpcode::rdma_write, 0));
  qps.a.post_send(remote(WqeOpcode::rdma_read, 50'000));
  qps.a.post_send(remote(WqeOpcode::atomic_fetch_add, 8));
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(wait(qps.a_cq).ok());
  EXPECT_EQ(at_b().rx_write_requests, 2U);
  EXPECT_EQ(at_b().rx_read_requests, 1U);
  EXPECT_EQ(at_b().rx_atomic_requests, 1U);
  EXPECT_EQ(at_a().rx_write_requests, 0U) << "of requests received, not sent";
  EXPECT_EQ(at_b().duplicate_request, 0U);
  EXPECT_EQ(at_a().req_cqe_error, 0U);
}

TEST_F(QCountersTest, ALostRequestPacketIsASequenceError) {
  drop_nth(5, [](const ib::Packet& p) { return ib::is_rdma_write(p.bth.opcode); });
  qps.a.post_send(remote(WqeOpcode::rdma_write, 50'000));
  EXPECT_TRUE(wait(qps.a_cq).ok());
  EXPECT_GE(at_b().out_of_sequence, 1U);
  EXPECT_EQ(at_a().packet_seq_err, 1U);
  EXPECT_EQ(at_a().local_ack_timeout_err, 0U);
  EXPECT_EQ(at_b().rx_write_requests, 1U);
}

TEST_F(QCountersTest, ALostAcknowledgeIsATimeoutAndADuplicate) {
  drop_nth(0, [](const ib::Packet& p) { return ib::is_response(p.bth.opcode); });
  qps.a.post_send(remote(WqeOpcode::rdma_write, 8));
  EXPECT_TRUE(wait(qps.a_cq).ok());
  EXPECT_EQ(at_a().local_ack_timeout_err, 1U);
  EXPECT_EQ(at_b().duplicate_request, 1U);
  EXPECT_EQ(at_b().out_of_sequence, 0U);
}

TEST_F(QCountersTest, ALostReadResponseIsAnImpliedNak) {
  drop_nth(10, [](const ib::Packet& p) { return ib::is_rdma_read_response(p.bth.opcode); });
  qps.a.post_send(remote(WqeOpcode::rdma_read, 50'000));
  EXPECT_TRUE(wait(qps.a_cq).ok());
  EXPECT_EQ(at_a().implied_nak_seq_err, 1U);
  EXPECT_EQ(at_b().rx_read_requests, 1U) << "the repeated request is a duplicate";
}

TEST_F(QCountersTest, ASendWithoutAReceiveIsOutOfBuffer) {
  // Behind the refused packet others arrive: they are not out of sequence, they come again.
  for (int i = 0; i < 4; ++i) qps.a.post_send({.sges = {qps.a_sge(0, 8)}});
  pair.run_for(100'000);
  for (int i = 0; i < 4; ++i) qps.b.post_recv({qps.b_sge(0, 64)});
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(wait(qps.a_cq).ok());
  EXPECT_GE(at_b().out_of_buffer, 1U);
  EXPECT_EQ(at_a().rnr_nak_retry_err, at_b().out_of_buffer);
  EXPECT_EQ(at_b().out_of_sequence, 0U);
}

TEST_F(QCountersTest, AWriteWithImmediateThatFindsNoReceiveIsOutOfBufferOnce) {
  auto request = remote(WqeOpcode::rdma_write_imm, 50'000);
  qps.a.post_send(request);
  pair.run_for(50'000);
  EXPECT_EQ(at_b().out_of_buffer, 1U) << "however many packets the message has";
  qps.b.post_recv({qps.b_sge(0, 64)});
  EXPECT_TRUE(wait(qps.a_cq).ok());
  EXPECT_EQ(at_b().rx_write_requests, 1U);
}

TEST_F(QCountersTest, RetriesThatRunOutAreNotRecoverable) {
  pair.fate = [](ib::Packet&) { return PacketFate{.drop = true}; };
  qps.a.post_send(remote(WqeOpcode::rdma_write, 8));
  EXPECT_EQ(wait(qps.a_cq).syndrome, prm::CqeSyndrome::transport_retry_exceeded);
  EXPECT_EQ(at_a().local_ack_timeout_err, qps.a.attributes.retry_count);
  EXPECT_EQ(at_a().req_transport_retries_exceeded, 1U);
  EXPECT_EQ(at_a().req_cqe_error, 1U);
}

TEST_F(QCountersTest, ARemoteAccessErrorIsCountedAtBothEnds) {
  qps.b.post_recv({qps.b_sge(0, 64)});
  auto request = remote(WqeOpcode::rdma_write, 8);
  request.rkey ^= 1;
  qps.a.write_send(request);
  qps.a.write_send(remote(WqeOpcode::rdma_write, 8));
  qps.a.ring();
  EXPECT_FALSE(wait(qps.a_cq).ok());
  pair.run_for(1'000'000);
  EXPECT_EQ(at_a().req_remote_access_errors, 1U);
  EXPECT_EQ(at_b().resp_remote_access_errors, 1U);
  EXPECT_EQ(at_a().req_cqe_error, 2U) << "the failed request and the flushed one";
  EXPECT_EQ(at_a().req_cqe_flush_error, 1U);
  EXPECT_EQ(at_b().resp_cqe_error, 1U);
  EXPECT_EQ(at_b().resp_cqe_flush_error, 1U);
  EXPECT_EQ(at_b().rx_write_requests, 0U) << "a refused request";
}

TEST_F(QCountersTest, AnAtomicThatIsNotAllowedIsAnInvalidRequest) {
  qps.b.attributes.remote_atomic = false;
  qps.b.modify(QpTransition::rts_to_rts, prm::kOptParamRae);
  qps.a.post_send(remote(WqeOpcode::atomic_fetch_add, 8));
  EXPECT_FALSE(wait(qps.a_cq).ok());
  EXPECT_EQ(at_a().req_remote_invalid_request, 1U);
  EXPECT_EQ(at_b().resp_remote_invalid_request, 1U);
}

TEST_F(QCountersTest, ATooShortReceiveIsALocalLengthError) {
  qps.b.post_recv({qps.b_sge(0, 4)});
  qps.a.post_send({.sges = {qps.a_sge(0, 8)}});
  EXPECT_FALSE(wait(qps.a_cq).ok());
  EXPECT_EQ(at_b().resp_local_length_error, 1U);
  EXPECT_EQ(at_b().resp_cqe_error, 1U);
}

TEST_F(QCountersTest, BadLocalKeysAreProtectionErrors) {
  qps.a.post_send({.sges = {{qps.a_buffer, 8, qps.a_key ^ 1}}});
  EXPECT_FALSE(wait(qps.a_cq).ok());
  EXPECT_EQ(at_a().req_local_protection, 1U);
}

TEST_F(QCountersTest, QpsOfOtherSetsAreNotCounted) {
  QCounterSet* other = pair.b.transport.create_q_counters(0);
  qps.b.attributes.counter_set_id = static_cast<std::uint8_t>(other->number);
  qps.b.modify(QpTransition::rts_to_rts, prm::kOptParamCounterSetId);
  qps.a.post_send(remote(WqeOpcode::rdma_write, 8));
  EXPECT_TRUE(wait(qps.a_cq).ok());
  EXPECT_EQ(other->counters.rx_write_requests, 1U);
  EXPECT_EQ(at_b().rx_write_requests, 0U);
}

TEST_F(QCountersTest, QpsOutliveTheirSet) {
  EXPECT_EQ(pair.b.transport.destroy_q_counters(b_set->number), DestroyResult::ok);
  qps.a.post_send(remote(WqeOpcode::rdma_write, 8));
  EXPECT_TRUE(wait(qps.a_cq).ok());
}

TEST_F(QCountersTest, DatagramsWithoutAReceiveAreOutOfBuffer) {
  TestCq a_cq{pair.a};
  TestCq b_cq{pair.b};
  TestQp from(pair.a, a_cq, a_cq, {.type = prm::QpServiceType::ud});
  TestQp to(pair.b, b_cq, b_cq, {.type = prm::QpServiceType::ud});
  to.attributes.counter_set_id = static_cast<std::uint8_t>(b_set->number);
  to.attributes.qkey = from.attributes.qkey = 5;
  from.connect(to);
  to.connect(from);
  from.post_send(
      {.sges = {qps.a_sge(0, 8)}, .destination_qpn = to.number(), .destination_lid = 2, .qkey = 5});
  EXPECT_TRUE(wait(a_cq).ok());
  pair.run_for(1'000'000);
  EXPECT_EQ(at_b().out_of_buffer, 1U);
}

}  // namespace
}  // namespace softhca::transport_test
