// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>

#include "hw-model/ib/opcodes.h"
#include "tests/support/transport_pair.h"

// Extended reliable connections (IBA A14): one connection, many SRQs at its far end.
namespace softhca::transport_test {
namespace {

using prm::CqeOpcode;
using prm::CqeSyndrome;
using prm::WqeOpcode;

class Xrc : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kDomain = 4;
  static constexpr std::uint32_t kSrqPd = 21;
  static constexpr std::size_t kSize = 1 << 20;

  Xrc() {
    initiator.connect(target);
    target.connect(initiator);
  }
  Completion wait(TestCq& cq) {
    std::optional<Completion> completion;
    EXPECT_TRUE(pair.run_until([&] { return (completion = cq.poll()).has_value(); }))
        << "no completion came";
    return completion.value_or(Completion{});
  }
  void post(TestSrq& srq, std::uint64_t offset, std::uint32_t length) {
    const std::array sges{Sge{b_buffer + offset, length, b_key}};
    srq.post(sges);
  }
  SendRequest send_to(std::uint32_t srqn, std::uint32_t length) const {
    return {.sges = {{a_buffer, length, a_key}}, .xrc_srqn = srqn};
  }

  TransportPair pair;
  TestCq a_cq{pair.a};
  TestCq unused_cq{pair.b};
  TestCq first_cq{pair.b};
  TestCq second_cq{pair.b};
  TestSrq first{
      pair.b, 6, 0, 64, {.xrcd = kDomain, .cq = &first_cq, .user_index = 0x111, .pd = kSrqPd}};
  TestSrq second{
      pair.b, 6, 0, 64, {.xrcd = kDomain, .cq = &second_cq, .user_index = 0x222, .pd = kSrqPd}};
  TestSrq foreign{pair.b, 6, 0, 64, {.xrcd = kDomain + 1, .cq = &second_cq, .pd = kSrqPd}};
  TestSrq plain{pair.b};
  TestQp initiator{pair.a, a_cq, a_cq, {.type = prm::QpServiceType::xrc, .xrcd = kDomain + 7}};
  TestQp target{pair.b, unused_cq, unused_cq, {.type = prm::QpServiceType::xrc, .xrcd = kDomain}};
  std::uint64_t a_buffer = pair.a.allocate(kSize, 4096);
  std::uint64_t b_buffer = pair.b.allocate(kSize, 4096);
  std::uint32_t a_key = pair.a.register_memory(a_buffer, kSize, kAllAccess);
  std::uint32_t b_key = pair.b.register_memory(b_buffer, kSize, kAllAccess, kSrqPd);
};

TEST_F(Xrc, EachMessageGoesToTheSrqThatItNamesAndCompletesThere) {
  const auto data = TestHost::pattern(10'000, 5);
  pair.a.fill(a_buffer, data);
  post(first, 0, 16'384);
  post(second, 32'768, 16'384);
  initiator.write_send(send_to(second.number(), 10'000));
  initiator.post_send(send_to(first.number(), 100));
  const Completion large = wait(second_cq);
  EXPECT_EQ(large.opcode, CqeOpcode::responder_send);
  EXPECT_EQ(large.user_index, 0x222U) << "the SRQ's, not the QP's";
  EXPECT_EQ(large.qpn, target.number());
  EXPECT_EQ(large.byte_count, 10'000U);
  const Completion small = wait(first_cq);
  EXPECT_EQ(small.user_index, 0x111U);
  EXPECT_EQ(small.byte_count, 100U);
  const auto memory = pair.b.bytes(b_buffer + 32'768, data.size());
  EXPECT_TRUE(std::equal(data.begin(), data.end(), memory.begin()));
  EXPECT_TRUE(wait(a_cq).ok());
  EXPECT_TRUE(wait(a_cq).ok());
  EXPECT_FALSE(unused_cq.poll().has_value());
}

TEST_F(Xrc, EveryRequestPacketIsOfTheXrcServiceAndNamesTheSrq) {
  bool named = true;
  pair.on_delivery = [&](const ib::Packet& packet) {
    named = named && ib::service_of(packet.bth.opcode) == ib::Service::xrc;
    if (ib::is_request(packet.bth.opcode)) named = named && packet.xrc_srqn == first.number();
  };
  post(first, 0, 16'384);
  initiator.post_send(send_to(first.number(), 10'000));
  EXPECT_TRUE(wait(a_cq).ok());
  EXPECT_TRUE(named);
}

TEST_F(Xrc, RemoteKeysBelongToTheSrqsDomain) {
  const auto data = TestHost::pattern(9'000, 6);
  pair.a.fill(a_buffer, data);
  SendRequest write = send_to(first.number(), 9'000);
  write.opcode = WqeOpcode::rdma_write;
  write.remote_address = b_buffer;
  write.rkey = b_key;
  initiator.post_send(write);
  ASSERT_TRUE(wait(a_cq).ok());
  SendRequest read = write;
  read.opcode = WqeOpcode::rdma_read;
  read.sges = {{a_buffer + 65'536, 9'000, a_key}};
  initiator.post_send(read);
  ASSERT_TRUE(wait(a_cq).ok());
  const auto memory = pair.a.bytes(a_buffer + 65'536, data.size());
  EXPECT_TRUE(std::equal(data.begin(), data.end(), memory.begin()));
  SendRequest add = write;
  add.opcode = WqeOpcode::atomic_fetch_add;
  add.sges = {{a_buffer + 8, 8, a_key}};
  add.swap_add = 1;
  initiator.post_send(add);
  ASSERT_TRUE(wait(a_cq).ok());
  // The domain of the target QP itself counts for nothing.
  write.rkey = pair.b.register_memory(b_buffer, kSize, kAllAccess, TestHost::kPd);
  initiator.post_send(write);
  EXPECT_EQ(wait(a_cq).syndrome, CqeSyndrome::remote_access);
}

TEST_F(Xrc, WriteWithImmediateTakesAReceiveOfTheNamedSrq) {
  post(second, 0, 64);
  SendRequest write = send_to(second.number(), 5'000);
  write.opcode = WqeOpcode::rdma_write_imm;
  write.remote_address = b_buffer + 4096;
  write.rkey = b_key;
  write.immediate = 0x1234;
  initiator.post_send(write);
  const Completion received = wait(second_cq);
  EXPECT_EQ(received.opcode, CqeOpcode::responder_write_imm);
  EXPECT_EQ(received.immediate, 0x1234U);
  EXPECT_EQ(received.user_index, 0x222U);
}

TEST_F(Xrc, AnSrqOfAnotherDomainIsAnInvalidRequest) {
  post(foreign, 0, 64);
  initiator.post_send(send_to(foreign.number(), 8));
  EXPECT_EQ(wait(a_cq).syndrome, CqeSyndrome::remote_invalid_request);
  EXPECT_EQ(target.query().state, prm::QpState::error);
  EXPECT_FALSE(second_cq.poll().has_value());
}

TEST_F(Xrc, AnSrqThatIsNotForXrcIsAnInvalidRequest) {
  post(plain, 0, 64);
  initiator.post_send(send_to(plain.number(), 8));
  EXPECT_EQ(wait(a_cq).syndrome, CqeSyndrome::remote_invalid_request);
}

TEST_F(Xrc, AnUnknownSrqIsAnInvalidRequest) {
  initiator.post_send(send_to(0xabcdef, 8));
  EXPECT_EQ(wait(a_cq).syndrome, CqeSyndrome::remote_invalid_request);
}

TEST_F(Xrc, APacketInsideAMessageNamesTheSameSrq) {
  pair.fate = [&](ib::Packet& packet) {
    if (ib::is_middle(packet.bth.opcode)) packet.xrc_srqn = second.number();
    return PacketFate{};
  };
  post(first, 0, 16'384);
  post(second, 32'768, 16'384);
  initiator.post_send(send_to(first.number(), 10'000));
  EXPECT_EQ(wait(a_cq).syndrome, CqeSyndrome::remote_invalid_request);
  const Completion flushed = wait(first_cq);
  EXPECT_EQ(flushed.syndrome, CqeSyndrome::flushed);
  EXPECT_EQ(flushed.user_index, 0x111U);
}

TEST_F(Xrc, AnEmptySrqIsReceiverNotReady) {
  initiator.post_send(send_to(first.number(), 8));
  pair.run_for(3'000'000);
  EXPECT_GE(target.query().counters.rnr_naks_sent, 1U);
  post(first, 0, 64);
  EXPECT_TRUE(wait(a_cq).ok());
  EXPECT_TRUE(wait(first_cq).ok());
}

TEST_F(Xrc, AMessageThatDoesNotFitFailsAtTheSrqsCq) {
  post(first, 0, 64);
  initiator.post_send(send_to(first.number(), 100));
  EXPECT_EQ(wait(first_cq).syndrome, CqeSyndrome::local_length);
  EXPECT_EQ(wait(a_cq).syndrome, CqeSyndrome::remote_invalid_request);
}

TEST_F(Xrc, AnSrqMayGoAwayInTheMiddleOfAMessage) {
  post(first, 0, 1 << 19);
  bool gone = false;
  pair.on_delivery = [&](const ib::Packet& packet) {
    if (!ib::is_middle(packet.bth.opcode) || gone) return;
    gone = pair.b.transport.destroy_srq(first.number()) == DestroyResult::ok;
  };
  initiator.post_send(send_to(first.number(), 200'000));
  EXPECT_EQ(wait(a_cq).syndrome, CqeSyndrome::remote_invalid_request);
  EXPECT_TRUE(gone);
  EXPECT_FALSE(first_cq.poll().has_value());
}

TEST_F(Xrc, LossIsRepairedAsOnAnyReliableConnection) {
  // Not every seventh: a READ whose retries are a multiple of seven packets would lose the same one
  // each time.
  std::minstd_rand random(8);
  pair.fate = [&](ib::Packet&) {
    PacketFate fate;
    fate.drop = random() % 7 == 0;
    return fate;
  };
  const auto data = TestHost::pattern(100'000, 8);
  pair.a.fill(a_buffer, data);
  post(first, 0, 131'072);
  initiator.post_send(send_to(first.number(), 100'000));
  EXPECT_EQ(wait(first_cq).byte_count, 100'000U);
  EXPECT_TRUE(wait(a_cq).ok());
  SendRequest read = send_to(second.number(), 50'000);
  read.opcode = WqeOpcode::rdma_read;
  read.sges = {{a_buffer + 524'288, 50'000, a_key}};
  read.remote_address = b_buffer;
  read.rkey = b_key;
  initiator.post_send(read);
  EXPECT_TRUE(wait(a_cq).ok());
  const auto memory = pair.a.bytes(a_buffer + 524'288, 50'000);
  EXPECT_TRUE(std::equal(memory.begin(), memory.end(), data.begin()));
}

}  // namespace
}  // namespace softhca::transport_test
