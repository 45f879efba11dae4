// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "hw-model/ib/opcodes.h"
#include "hw-model/ib/psn.h"
#include "tests/support/transport_pair.h"

// Lost, duplicated, reordered and late packets; retries and their limits (IBA 9.7.5, 9.7.6).
namespace softhca::transport_test {
namespace {

using prm::CqeSyndrome;
using prm::WqeOpcode;

class RcReliability : public ::testing::Test {
 protected:
  Completion wait(TestCq& cq) {
    std::optional<Completion> completion;
    EXPECT_TRUE(pair.run_until([&] { return (completion = cq.poll()).has_value(); }))
        << "no completion came";
    return completion.value_or(Completion{});
  }
  /// Drops the `n`th packet (from 0) for which `matches` holds.
  void drop_nth(unsigned n, std::function<bool(const ib::Packet&)> matches) {
    pair.fate = [this, n, matches, seen = 0U](ib::Packet& packet) mutable {
      PacketFate what;
      if (matches(packet) && seen++ == n) {
        what.drop = true;
        ++dropped;
      }
      return what;
    };
  }
  SendRequest write_request(std::uint32_t size) {
    return {.opcode = WqeOpcode::rdma_write,
            .sges = {qps.a_sge(0, size)},
            .remote_address = qps.b_buffer,
            .rkey = qps.b_key};
  }
  SendRequest read_request(std::uint32_t size) {
    return {.opcode = WqeOpcode::rdma_read,
            .sges = {qps.a_sge(0, size)},
            .remote_address = qps.b_buffer,
            .rkey = qps.b_key};
  }
  bool same(std::size_t size) {
    const auto a = pair.a.bytes(qps.a_buffer, size);
    const auto b = pair.b.bytes(qps.b_buffer, size);
    return std::equal(a.begin(), a.end(), b.begin());
  }

  TransportPair pair;
  ConnectedQps qps{pair};
  unsigned dropped = 0;
};

TEST_F(RcReliability, ALostRequestPacketIsNakedOnceAndSentAgain) {
  pair.a.fill(qps.a_buffer, TestHost::pattern(50'000, 1));
  drop_nth(5, [](const ib::Packet& p) { return ib::is_rdma_write(p.bth.opcode); });
  qps.a.post_send(write_request(50'000));
  EXPECT_TRUE(wait(qps.a_cq).ok());
  EXPECT_EQ(dropped, 1U);
  EXPECT_TRUE(same(50'000));
  EXPECT_EQ(qps.b.query().counters.sequence_naks_sent, 1U) << "one NAK per gap";
  EXPECT_EQ(qps.a.query().counters.timeouts, 0U);
  EXPECT_EQ(qps.a.query().counters.retransmissions, 1U);
}

TEST_F(RcReliability, ALostLastPacketIsRecoveredByTheTimeout) {
  pair.a.fill(qps.a_buffer, TestHost::pattern(3'000, 1));
  drop_nth(0, [](const ib::Packet& p) { return ib::is_last(p.bth.opcode); });
  const Nanoseconds start = pair.clock.now();
  qps.a.post_send(write_request(3'000));
  EXPECT_TRUE(wait(qps.a_cq).ok());
  EXPECT_TRUE(same(3'000));
  EXPECT_EQ(qps.a.query().counters.timeouts, 1U);
  const Nanoseconds unit = Nanoseconds{4096} << qps.a.attributes.ack_timeout;
  EXPECT_GE(pair.clock.now() - start, unit) << "not before 4.096 us * 2^n";
  EXPECT_LE(pair.clock.now() - start, 4 * unit) << "not later than four times that";
}

TEST_F(RcReliability, ALostAcknowledgeDoesNotExecuteTheMessageTwice) {
  qps.b.post_recv({qps.b_sge(0, 64)});
  qps.b.post_recv({qps.b_sge(64, 64)});
  drop_nth(0, [](const ib::Packet& p) { return ib::is_response(p.bth.opcode); });
  qps.a.post_send({.sges = {qps.a_sge(0, 8)}});
  EXPECT_TRUE(wait(qps.a_cq).ok());
  EXPECT_EQ(qps.b_cq.drain().size(), 1U);
  EXPECT_EQ(qps.b.query().counters.duplicate_requests, 1U);
}

TEST_F(RcReliability, OneAcknowledgeAnswersWhatIsDeliveredTogether) {
  unsigned acknowledges = 0;
  pair.fate = [&acknowledges](ib::Packet& packet) {
    acknowledges += ib::is_response(packet.bth.opcode) ? 1 : 0;
    return PacketFate{};
  };
  for (unsigned i = 0; i < 16; ++i) qps.a.post_send(write_request(8));
  pair.run();
  EXPECT_EQ(qps.a_cq.drain().size(), 16U);
  EXPECT_LT(acknowledges, 8U);
}

TEST_F(RcReliability, AnAcknowledgeLeavesWhenTheDeliveryEnds) {
  ib::PacketPtr request;
  pair.fate = [&request](ib::Packet& packet) {
    PacketFate fate;
    if (ib::is_request(packet.bth.opcode)) {
      request = std::make_unique<ib::Packet>(packet);
      fate.drop = true;
    }
    return fate;
  };
  qps.a.post_send(write_request(8));
  pair.a.transport.step(pair.budget);
  ASSERT_NE(request, nullptr);
  pair.b.transport.receive(*request);
  EXPECT_EQ(pair.in_flight(), 0U);
  pair.b.transport.delivered();
  EXPECT_EQ(pair.in_flight(), 1U) << "the acknowledge, without a step";
  pair.b.transport.delivered();
  pair.b.transport.step(pair.budget);
  EXPECT_EQ(pair.in_flight(), 1U) << "and it leaves once";
  EXPECT_TRUE(wait(qps.a_cq).ok());
}

TEST_F(RcReliability, ALostReadResponseRestartsTheReadInItsMiddle) {
  pair.b.fill(qps.b_buffer, TestHost::pattern(50'000, 2));
  unsigned requests = 0;
  std::uint32_t second_length = 0;
  pair.on_delivery = [&](const ib::Packet& p) {
    if (ib::is_rdma_read_request(p.bth.opcode) && requests++ == 1) second_length = p.reth.length;
  };
  drop_nth(10, [](const ib::Packet& p) { return ib::is_rdma_read_response(p.bth.opcode); });
  qps.a.post_send(read_request(50'000));
  EXPECT_TRUE(wait(qps.a_cq).ok());
  EXPECT_TRUE(same(50'000));
  EXPECT_EQ(requests, 2U);
  EXPECT_EQ(second_length, 50'000U - 10 * 1024) << "only what is missing is asked for again";
  EXPECT_EQ(qps.a.query().counters.implied_naks, 1U);
}

TEST_F(RcReliability, ADuplicateAtomicIsAnsweredFromTheSavedResult) {
  auto* word = reinterpret_cast<std::uint64_t*>(pair.b.at(qps.b_buffer));
  *word = 10;
  drop_nth(0, [](const ib::Packet& p) { return ib::has_atomic_ack_eth(p.bth.opcode); });
  qps.a.post_send({.opcode = WqeOpcode::atomic_fetch_add,
                   .sges = {qps.a_sge(0, 8)},
                   .remote_address = qps.b_buffer,
                   .rkey = qps.b_key,
                   .swap_add = 1});
  EXPECT_TRUE(wait(qps.a_cq).ok());
  EXPECT_EQ(*word, 11U) << "executed twice";
  EXPECT_EQ(*reinterpret_cast<std::uint64_t*>(pair.a.at(qps.a_buffer)), 10U);
}

TEST_F(RcReliability, ADuplicateReadIsExecutedAgain) {
  pair.b.fill(qps.b_buffer, TestHost::pattern(64, 2));
  drop_nth(0, [](const ib::Packet& p) { return ib::is_rdma_read_response(p.bth.opcode); });
  pair.on_delivery = [&, first = true](const ib::Packet& p) mutable {
    if (!ib::is_rdma_read_request(p.bth.opcode)) return;
    if (!first) pair.b.fill(qps.b_buffer, TestHost::pattern(64, 3));
    first = false;
  };
  qps.a.post_send(read_request(64));
  EXPECT_TRUE(wait(qps.a_cq).ok());
  const auto newer = TestHost::pattern(64, 3);
  const auto got = pair.a.bytes(qps.a_buffer, 64);
  EXPECT_TRUE(std::equal(newer.begin(), newer.end(), got.begin()));
}

TEST_F(RcReliability, RetryCountTimeoutsThenTransportRetryExceeded) {
  unsigned tries = 0;
  pair.fate = [&](ib::Packet& p) {
    PacketFate what;
    tries += ib::is_request(p.bth.opcode);
    what.drop = true;
    return what;
  };
  qps.a.post_send(write_request(8));
  const Completion failed = wait(qps.a_cq);
  EXPECT_EQ(failed.syndrome, CqeSyndrome::transport_retry_exceeded);
  EXPECT_EQ(failed.vendor, 0x81);
  EXPECT_EQ(tries, 1U + qps.a.attributes.retry_count);
  EXPECT_EQ(qps.a.query().state, prm::QpState::error);
}

TEST_F(RcReliability, ProgressRestoresTheRetries) {
  // Every message needs more than one try, more often than retry_count in all.
  unsigned n = 0;
  pair.fate = [&](ib::Packet& p) {
    PacketFate what;
    what.drop = ib::is_request(p.bth.opcode) && n++ % 5 != 4;
    return what;
  };
  for (int i = 0; i < 8; ++i) {
    qps.a.post_send(write_request(8));
    ASSERT_TRUE(wait(qps.a_cq).ok());
  }
  EXPECT_GT(qps.a.query().counters.timeouts, qps.a.attributes.retry_count);
}

TEST_F(RcReliability, AckTimeoutZeroWaitsForEver) {
  ConnectedQps patient(pair, {}, 10, [](TestQp& a, TestQp&) { a.attributes.ack_timeout = 0; });
  pair.fate = [](ib::Packet&) {
    PacketFate what;
    what.drop = true;
    return what;
  };
  patient.a.post_send({.opcode = WqeOpcode::rdma_write,
                       .sges = {patient.a_sge(0, 8)},
                       .remote_address = patient.b_buffer,
                       .rkey = patient.b_key});
  pair.run_for(100'000'000'000);
  EXPECT_FALSE(patient.a_cq.poll().has_value());
  EXPECT_EQ(pair.a.transport.next_deadline(), kNever);
}

TEST_F(RcReliability, ReceiverNotReadyIsRetriedAfterTheResponderTimer) {
  pair.a.fill(qps.a_buffer, TestHost::pattern(8, 1));
  const Nanoseconds start = pair.clock.now();
  qps.a.post_send({.sges = {qps.a_sge(0, 8)}});
  pair.run_for(10'000);
  EXPECT_EQ(qps.b.query().counters.rnr_naks_sent, 1U);
  EXPECT_EQ(qps.a.query().stall, "the peer has no receive posted (RNR NAK)");
  qps.b.post_recv({qps.b_sge(0, 64)});
  EXPECT_TRUE(wait(qps.a_cq).ok());
  // Code 12 is 0.64 ms.
  EXPECT_GE(pair.clock.now() - start, 640'000U);
  EXPECT_LE(pair.clock.now() - start, 700'000U);
  EXPECT_TRUE(same(8));
}

TEST_F(RcReliability, RnrRetrySevenIsForEver) {
  qps.a.post_send({.sges = {qps.a_sge(0, 8)}});
  pair.run_for(1'000'000'000);
  EXPECT_FALSE(qps.a_cq.poll().has_value());
  EXPECT_GT(qps.a.query().counters.rnr_naks_received, 100U);
  qps.b.post_recv({qps.b_sge(0, 64)});
  EXPECT_TRUE(wait(qps.a_cq).ok());
}

TEST_F(RcReliability, RnrRetriesRunOut) {
  ConnectedQps hasty(pair, {}, 10, [](TestQp& a, TestQp&) { a.attributes.rnr_retry = 2; });
  hasty.a.post_send({.sges = {hasty.a_sge(0, 8)}});
  EXPECT_EQ(wait(hasty.a_cq).syndrome, CqeSyndrome::rnr_retry_exceeded);
  EXPECT_EQ(hasty.b.query().counters.rnr_naks_sent, 3U);
}

TEST_F(RcReliability, WriteWithImmediateIsRefusedOnlyAtItsEnd) {
  pair.a.fill(qps.a_buffer, TestHost::pattern(5'000, 1));
  auto request = write_request(5'000);
  request.opcode = WqeOpcode::rdma_write_imm;
  qps.a.post_send(request);
  pair.run_for(100'000);
  EXPECT_EQ(qps.b.query().counters.rnr_naks_sent, 1U);
  EXPECT_EQ(qps.b.query().counters.bytes_received, 4'096U);
  qps.b.post_recv({qps.b_sge(8192, 64)});
  EXPECT_TRUE(wait(qps.a_cq).ok());
  EXPECT_TRUE(same(5'000));
  EXPECT_EQ(qps.b_cq.drain().size(), 1U);
}

TEST_F(RcReliability, AnAckForALaterSendMeansTheReadResponseWasLost) {
  pair.b.fill(qps.b_buffer, TestHost::pattern(64, 2));
  qps.b.post_recv({qps.b_sge(4096, 64)});
  drop_nth(0, [](const ib::Packet& p) { return ib::is_rdma_read_response(p.bth.opcode); });
  qps.a.write_send(read_request(64));
  qps.a.post_send({.sges = {qps.a_sge(4096, 8)}});
  const Nanoseconds start = pair.clock.now();
  EXPECT_EQ(wait(qps.a_cq).send_opcode, WqeOpcode::rdma_read);
  EXPECT_EQ(wait(qps.a_cq).send_opcode, WqeOpcode::send);
  EXPECT_TRUE(same(64));
  EXPECT_EQ(qps.a.query().counters.timeouts, 0U);
  EXPECT_LT(pair.clock.now() - start, 1'000'000U) << "it need not wait for the timeout";
  EXPECT_EQ(qps.b_cq.drain().size(), 1U);
}

TEST_F(RcReliability, AFullLinkOnlyDelays) {
  pair.a.fill(qps.a_buffer, TestHost::pattern(50'000, 1));
  pair.a.port.is_ready = false;
  qps.a.post_send(write_request(50'000));
  EXPECT_FALSE(pair.a.transport.step({})) << "a full link is not work that can go on";
  EXPECT_EQ(pair.packets(), 0U);
  pair.a.port.is_ready = true;
  pair.a.transport.port_ready();
  EXPECT_TRUE(wait(qps.a_cq).ok());
  EXPECT_TRUE(same(50'000));
}

TEST_F(RcReliability, ResponsesOfABrokenPeerAreIgnored) {
  // Acknowledges for PSNs never sent, or long done.
  ib::Packet ack;
  ack.bth.opcode = ib::make_opcode(ib::Service::rc, ib::Operation::acknowledge);
  ack.bth.dest_qp = qps.a.number();
  ack.path.dlid = 1;
  for (const std::uint32_t psn : {0U, 5U, 0x7fffffU, 0x800000U, 0xffffffU}) {
    ack.bth.psn = psn;
    for (unsigned syndrome = 0; syndrome < 256; ++syndrome) {
      ack.aeth.syndrome = static_cast<std::uint8_t>(syndrome);
      ib::Packet copy = ack;
      pair.a.transport.receive(copy);
    }
  }
  EXPECT_EQ(qps.a.query().state, prm::QpState::rts);
  qps.a.post_send(write_request(8));
  EXPECT_TRUE(wait(qps.a_cq).ok());
}

/// Any mix of operations over a wire that loses, repeats and reorders: everything completes once,
/// in order, with the right data.
class RcUnderFaults : public ::testing::TestWithParam<unsigned> {};

TEST_P(RcUnderFaults, EveryRequestCompletesOnceInOrderWithItsData) {
  std::mt19937 random(GetParam());
  const auto chance = [&random](unsigned percent) { return random() % 100 < percent; };
  TransportPair pair;
  ConnectedQps qps(pair, {}, 10, [&](TestQp& a, TestQp& b) {
    a.attributes.mtu = b.attributes.mtu = static_cast<std::uint8_t>(1 + random() % 5);
    a.attributes.next_send_psn = random() & 0xffffff;
    b.attributes.next_send_psn = random() & 0xffffff;
    a.attributes.retry_count = b.attributes.retry_count = 7;
    a.attributes.ack_timeout = 5;
  });
  const unsigned loss = random() % 6;
  const unsigned repeat = random() % 6;
  const unsigned delay = random() % 6;
  pair.fate = [&](ib::Packet&) {
    PacketFate what;
    what.drop = chance(loss);
    what.copies = chance(repeat) ? 2 : 1;
    what.extra_delay = chance(delay) ? random() % 5'000 : 0;
    return what;
  };
  auto* counter = reinterpret_cast<std::uint64_t*>(pair.b.at(qps.b_buffer + (1 << 20)));
  *counter = 0;
  std::uint64_t expected_counter = 0;
  unsigned expected_receives = 0;
  for (unsigned i = 0; i < 40; ++i) {
    const auto size = static_cast<std::uint32_t>(chance(30) ? random() % 20'000 : random() % 600);
    const std::uint64_t place = std::uint64_t{i} * 20'000;
    const auto data = TestHost::pattern(size, i);
    SendRequest request{.sges = {qps.a_sge(place, size)},
                        .remote_address = qps.b_buffer + place,
                        .rkey = qps.b_key,
                        .immediate = i};
    if (size == 0) request.sges.clear();
    const unsigned kind = random() % 6;
    const bool reads = kind == 3;
    if (kind < 5)
      (reads ? pair.b : pair.a).fill((reads ? qps.b_buffer : qps.a_buffer) + place, data);
    switch (kind) {
      case 0:
      case 1:
        request.opcode = WqeOpcode::send_imm;
        qps.b.post_recv({qps.b_sge(place, 20'000)});
        ++expected_receives;
        break;
      case 2:
        request.opcode = WqeOpcode::rdma_write;
        break;
      case 3:
        request.opcode = WqeOpcode::rdma_read;
        break;
      case 4:
        request.opcode = WqeOpcode::rdma_write_imm;
        qps.b.post_recv({qps.b_sge(place, 20'000)});
        ++expected_receives;
        break;
      default:
        request.opcode = WqeOpcode::atomic_fetch_add;
        request.sges = {qps.a_sge((1 << 20) + i * 8, 8)};
        request.remote_address = qps.b_buffer + (1 << 20);
        request.swap_add = i + 1;
        expected_counter += i + 1;
        break;
    }
    qps.a.post_send(request);
    if (chance(50)) pair.run_for(random() % 50'000);
  }
  std::vector<Completion> sent;
  std::vector<Completion> received;
  ASSERT_TRUE(pair.run_until([&] {
    while (auto c = qps.a_cq.poll()) sent.push_back(*c);
    while (auto c = qps.b_cq.poll()) received.push_back(*c);
    return sent.size() == 40 && received.size() == expected_receives;
  })) << sent.size()
      << " of 40 sent, " << received.size() << " of " << expected_receives << " received; "
      << qps.a.query().stall;
  std::uint16_t previous = 0;
  for (std::size_t i = 0; i < sent.size(); ++i) {
    ASSERT_TRUE(sent[i].ok()) << "request " << i << " syndrome "
                              << static_cast<unsigned>(sent[i].syndrome);
    ASSERT_TRUE(i == 0 || sent[i].wqe_counter > previous);
    previous = sent[i].wqe_counter;
  }
  for (std::size_t i = 1; i < received.size(); ++i) {
    ASSERT_LT(received[i - 1].immediate, received[i].immediate);
  }
  EXPECT_EQ(*counter, expected_counter);
  const auto a = pair.a.bytes(qps.a_buffer, 40 * 20'000);
  const auto b = pair.b.bytes(qps.b_buffer, 40 * 20'000);
  EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin()));
  EXPECT_EQ(qps.a.query().state, prm::QpState::rts);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RcUnderFaults, ::testing::Range(0U, 60U));

}  // namespace
}  // namespace softhca::transport_test
