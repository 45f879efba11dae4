// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <gtest/gtest.h>

#include <algorithm>

#include "hw-model/ib/opcodes.h"
#include "tests/support/transport_pair.h"

// UC and UD (IBA 9.8).
namespace softhca::transport_test {
namespace {

using prm::CqeOpcode;
using prm::CqeSyndrome;
using prm::WqeOpcode;

class Unreliable : public ::testing::Test {
 protected:
  explicit Unreliable(prm::QpServiceType type) : qps(pair, {.type = type}) {}

  Completion wait(TestCq& cq) {
    std::optional<Completion> completion;
    EXPECT_TRUE(pair.run_until([&] { return (completion = cq.poll()).has_value(); }))
        << "no completion came";
    return completion.value_or(Completion{});
  }

  TransportPair pair;
  ConnectedQps qps;
};

/// UD completions without immediate data show the index of the QP's P_Key, those of QP1, which
/// takes any P_Key of the port, the packet's.
class DatagramPkeys : public ::testing::Test {
 protected:
  DatagramPkeys() {
    for (TestHost* host : {&pair.a, &pair.b}) {
      host->port.change().pkeys = {0xffff, 0x7fff, 0x8123};
    }
  }
  /// What the completion of a datagram to a QP of that type shows.
  std::uint32_t shown(prm::QpServiceType type) {
    TestCq from_cq{pair.a};
    TestCq to_cq{pair.b};
    TestQp from(pair.a, from_cq, from_cq, {.type = type});
    TestQp to(pair.b, to_cq, to_cq, {.type = type});
    from.attributes.pkey_index = to.attributes.pkey_index = 2;
    from.attributes.qkey = to.attributes.qkey = ib::kQp1Qkey;
    from.connect(to);
    to.connect(from);
    const std::uint64_t a = pair.a.allocate(4096);
    const std::uint64_t b = pair.b.allocate(4096);
    to.post_recv({{b, 4096, pair.b.register_memory(b, 4096, kAllAccess)}});
    from.post_send({.sges = {{a, 256, pair.a.register_memory(a, 4096, kAllAccess)}},
                    .destination_qpn = type == prm::QpServiceType::qp1 ? ib::kQp1 : to.number(),
                    .destination_lid = 2,
                    .qkey = ib::kQp1Qkey});
    std::optional<Completion> completion;
    EXPECT_TRUE(pair.run_until([&] { return (completion = to_cq.poll()).has_value(); }));
    return completion.value_or(Completion{}).immediate;
  }

  TransportPair pair;
};

TEST_F(DatagramPkeys, AnOrdinaryQpShowsTheIndex) {
  EXPECT_EQ(shown(prm::QpServiceType::ud), 2U);
}

TEST_F(DatagramPkeys, Qp1ShowsTheKey) {
  EXPECT_EQ(shown(prm::QpServiceType::qp1), 0x8123U);
}

class Uc : public Unreliable {
 protected:
  Uc() : Unreliable(prm::QpServiceType::uc) {}
  void send(std::uint32_t size, std::uint32_t immediate) {
    qps.a.post_send(
        {.opcode = WqeOpcode::send_imm, .sges = {qps.a_sge(0, size)}, .immediate = immediate});
  }
};

TEST_F(Uc, SendAndWriteArriveAndNothingIsAnswered) {
  bool answered = false;
  pair.on_delivery = [&](const ib::Packet& p) {
    answered = answered || ib::is_response(p.bth.opcode);
  };
  const auto data = TestHost::pattern(10'000, 1);
  pair.a.fill(qps.a_buffer, data);
  qps.b.post_recv({qps.b_sge(0, 20'000)});
  send(10'000, 1);
  EXPECT_EQ(wait(qps.b_cq).byte_count, 10'000U);
  EXPECT_TRUE(wait(qps.a_cq).ok());
  qps.a.post_send({.opcode = WqeOpcode::rdma_write,
                   .sges = {qps.a_sge(0, 10'000)},
                   .remote_address = qps.b_buffer + 50'000,
                   .rkey = qps.b_key});
  EXPECT_TRUE(wait(qps.a_cq).ok());
  pair.run();
  const auto memory = pair.b.bytes(qps.b_buffer + 50'000, data.size());
  EXPECT_TRUE(std::equal(data.begin(), data.end(), memory.begin()));
  EXPECT_FALSE(answered);
}

TEST_F(Uc, ALostPacketCostsItsMessageOnlyAndTheReceiveIsUsedAgain) {
  qps.b.post_recv({qps.b_sge(0, 20'000)});
  pair.fate = [n = 0](ib::Packet&) mutable {
    PacketFate what;
    what.drop = n++ == 2;
    return what;
  };
  send(5'000, 1);
  send(5'000, 2);
  pair.run();
  EXPECT_EQ(qps.a_cq.drain().size(), 2U) << "the sender does not know";
  const auto received = qps.b_cq.drain();
  ASSERT_EQ(received.size(), 1U);
  EXPECT_EQ(received[0].immediate, 2U);
  EXPECT_EQ(received[0].wqe_counter, 0U);
}

TEST_F(Uc, WithoutAReceiveTheMessageIsDropped) {
  send(3'000, 1);
  pair.run();
  qps.b.post_recv({qps.b_sge(0, 20'000)});
  send(3'000, 2);
  EXPECT_EQ(wait(qps.b_cq).immediate, 2U);
}

TEST_F(Uc, AWrongRkeyIsDroppedSilently) {
  qps.a.post_send({.opcode = WqeOpcode::rdma_write,
                   .sges = {qps.a_sge(0, 8)},
                   .remote_address = qps.b_buffer,
                   .rkey = 0x123400});
  EXPECT_TRUE(wait(qps.a_cq).ok());
  pair.run();
  EXPECT_EQ(qps.b.query().state, prm::QpState::rts);
}

TEST_F(Uc, ReadsAndAtomicsAreNotOfThisService) {
  qps.a.post_send({.opcode = WqeOpcode::rdma_read,
                   .sges = {qps.a_sge(0, 8)},
                   .remote_address = qps.b_buffer,
                   .rkey = qps.b_key});
  EXPECT_EQ(wait(qps.a_cq).syndrome, CqeSyndrome::local_qp_operation);
}

TEST_F(Uc, AFailedSendStopsOnlyTheSendQueueAndItCanGoOn) {
  qps.a.post_send({.sges = {{qps.a_buffer, 8, 0x999900}}});
  qps.a.post_send({.sges = {qps.a_sge(0, 8)}});
  EXPECT_EQ(wait(qps.a_cq).syndrome, CqeSyndrome::local_protection);
  EXPECT_EQ(wait(qps.a_cq).syndrome, CqeSyndrome::flushed);
  EXPECT_EQ(qps.a.query().state, prm::QpState::sq_error);
  qps.a.post_recv({qps.a_sge(100, 64)});
  qps.b.post_send({.sges = {qps.b_sge(0, 8)}});
  EXPECT_EQ(wait(qps.a_cq).opcode, CqeOpcode::responder_send) << "it still receives";
  EXPECT_EQ(qps.a.modify(QpTransition::sq_error_to_rts), ModifyResult::ok);
  qps.b.post_recv({qps.b_sge(0, 64)});
  qps.a.post_send({.sges = {qps.a_sge(0, 8)}});
  EXPECT_TRUE(wait(qps.a_cq).ok());
}

class Ud : public Unreliable {
 protected:
  Ud() : Unreliable(prm::QpServiceType::ud) {}
  SendRequest to_b(std::uint32_t size) {
    return {.sges = {qps.a_sge(0, size)},
            .destination_qpn = qps.b.number(),
            .destination_lid = 2,
            .qkey = qps.b.attributes.qkey};
  }
};

TEST_F(Ud, PayloadFollowsFortyBytesAndTheCqeNamesTheSender) {
  const auto data = TestHost::pattern(500, 1);
  pair.a.fill(qps.a_buffer, data);
  qps.b.post_recv({qps.b_sge(0, 600)});
  qps.a.post_send(to_b(500));
  const Completion received = wait(qps.b_cq);
  EXPECT_EQ(received.byte_count, 540U);
  EXPECT_EQ(received.remote_qpn, qps.a.number());
  EXPECT_EQ(received.source_lid, 1U);
  EXPECT_FALSE(received.grh);
  const auto memory = pair.b.bytes(qps.b_buffer + 40, data.size());
  EXPECT_TRUE(std::equal(data.begin(), data.end(), memory.begin()));
  EXPECT_TRUE(wait(qps.a_cq).ok());
}

TEST_F(Ud, ImmediateArrives) {
  qps.b.post_recv({qps.b_sge(0, 600)});
  auto request = to_b(4);
  request.opcode = WqeOpcode::send_imm;
  request.immediate = 0xabcdef01;
  qps.a.post_send(request);
  const Completion received = wait(qps.b_cq);
  EXPECT_EQ(received.opcode, CqeOpcode::responder_send_imm);
  EXPECT_EQ(received.immediate, 0xabcdef01U);
}

TEST_F(Ud, AGrhIsDeliveredInTheFirstFortyBytes) {
  qps.b.post_recv({qps.b_sge(0, 600)});
  auto request = to_b(8);
  request.destination_gid = pair.b.port.attributes().gids[0];
  qps.a.post_send(request);
  const Completion received = wait(qps.b_cq);
  EXPECT_TRUE(received.grh);
  const auto grh = pair.b.bytes(qps.b_buffer, 40);
  EXPECT_EQ(grh[0], std::byte{0x60});
  EXPECT_EQ(grh[5], std::byte{12 + 8 + 8 + 4}) << "BTH, DETH, payload, ICRC";
  EXPECT_EQ(grh[6], std::byte{0x1b});
  EXPECT_EQ(grh[23], std::byte{1}) << "source GID";
  EXPECT_EQ(grh[39], std::byte{2}) << "destination GID";
}

TEST_F(Ud, AWrongQkeyIsDroppedAndCounted) {
  qps.b.post_recv({qps.b_sge(0, 600)});
  auto request = to_b(8);
  request.qkey ^= 1;
  qps.a.post_send(request);
  EXPECT_TRUE(wait(qps.a_cq).ok()) << "the sender does not know";
  pair.run();
  EXPECT_TRUE(qps.b_cq.drain().empty());
  EXPECT_EQ(pair.b.transport.qkey_violations(), 1U);
}

TEST_F(Ud, AQkeyWithTheHighBitStandsForTheQpsOwn) {
  qps.b.post_recv({qps.b_sge(0, 600)});
  auto request = to_b(8);
  request.qkey = 0x80000000U;
  qps.a.post_send(request);
  EXPECT_TRUE(wait(qps.b_cq).ok());
}

TEST_F(Ud, AMessageLongerThanTheMtuIsALocalLengthError) {
  qps.a.post_send(to_b(4097));
  EXPECT_EQ(wait(qps.a_cq).syndrome, CqeSyndrome::local_length);
}

TEST_F(Ud, WithoutAReceiveTheDatagramIsDropped) {
  qps.a.post_send(to_b(8));
  EXPECT_TRUE(wait(qps.a_cq).ok());
  pair.run();
  EXPECT_EQ(qps.b.query().counters.packets_dropped, 1U);
}

TEST_F(Ud, MulticastReachesEveryAttachedQpButTheSender) {
  const ib::Gid group{0xff, 0x12, 0x40, 0x1b, 1};
  TestCq other_cq(pair.a);
  TestQp other(pair.a, other_cq, other_cq, {.type = prm::QpServiceType::ud});
  TestCq far_cq(pair.b);
  TestQp far(pair.b, far_cq, far_cq, {.type = prm::QpServiceType::ud});
  other.connect(other);
  far.connect(far);
  EXPECT_TRUE(pair.a.transport.attach_multicast(qps.a.number(), group));
  EXPECT_TRUE(pair.a.transport.attach_multicast(other.number(), group));
  EXPECT_TRUE(pair.b.transport.attach_multicast(qps.b.number(), group));
  EXPECT_TRUE(pair.b.transport.attach_multicast(far.number(), group));
  EXPECT_EQ(pair.b.transport.destroy_qp(far.number()), DestroyResult::in_use);
  qps.a.post_recv({qps.a_sge(0, 600)});
  qps.b.post_recv({qps.b_sge(0, 600)});
  other.post_recv({qps.a_sge(1000, 600)});
  far.post_recv({qps.b_sge(1000, 600)});
  auto request = to_b(8);
  request.destination_qpn = ib::kMulticastQp;
  request.destination_lid = 0xc001;
  request.destination_gid = group;
  qps.a.post_send(request);
  pair.run();
  EXPECT_EQ(qps.b_cq.drain().size(), 1U);
  EXPECT_EQ(far_cq.drain().size(), 1U);
  EXPECT_EQ(other_cq.drain().size(), 1U) << "another member on the sender's host";
  EXPECT_EQ(qps.a_cq.drain().size(), 1U) << "only the send completes, nothing is received";
  EXPECT_TRUE(pair.b.transport.detach_multicast(far.number(), group));
  EXPECT_FALSE(pair.b.transport.detach_multicast(far.number(), group));
}

}  // namespace
}  // namespace softhca::transport_test
