// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "hw-model/ib/opcodes.h"
#include "tests/support/transport_pair.h"

// What RC work requests do on a perfect wire.
namespace softhca::transport_test {
namespace {

using prm::CqeOpcode;
using prm::WqeOpcode;

class RcOperations : public ::testing::Test {
 protected:
  static constexpr std::size_t kSize = 100'000;  // Many packets, the last one not full.

  Completion wait(TestCq& cq) {
    std::optional<Completion> completion;
    EXPECT_TRUE(pair.run_until([&] { return (completion = cq.poll()).has_value(); }))
        << "no completion came";
    return completion.value_or(Completion{});
  }
  std::vector<std::byte> fill_a(std::size_t size, unsigned seed = 1) {
    auto data = TestHost::pattern(size, seed);
    pair.a.fill(qps.a_buffer, data);
    return data;
  }
  std::vector<std::byte> fill_b(std::size_t size, unsigned seed = 2) {
    auto data = TestHost::pattern(size, seed);
    pair.b.fill(qps.b_buffer, data);
    return data;
  }
  bool b_holds(std::span<const std::byte> data, std::uint64_t offset = 0) {
    const auto memory = pair.b.bytes(qps.b_buffer + offset, data.size());
    return std::equal(data.begin(), data.end(), memory.begin());
  }
  bool a_holds(std::span<const std::byte> data, std::uint64_t offset = 0) {
    const auto memory = pair.a.bytes(qps.a_buffer + offset, data.size());
    return std::equal(data.begin(), data.end(), memory.begin());
  }
  std::uint64_t& b_word(std::uint64_t offset) {
    return *reinterpret_cast<std::uint64_t*>(pair.b.at(qps.b_buffer + offset));
  }
  std::uint64_t a_word(std::uint64_t offset) {
    return *reinterpret_cast<std::uint64_t*>(pair.a.at(qps.a_buffer + offset));
  }

  TransportPair pair;
  ConnectedQps qps{pair};
};

TEST_F(RcOperations, SendFillsThePostedBufferAndCompletesOnBothSides) {
  const auto data = fill_a(kSize);
  qps.b.post_recv({qps.b_sge(0, 200'000)});
  const auto index = qps.a.post_send({.sges = {qps.a_sge(0, kSize)}});

  const Completion received = wait(qps.b_cq);
  EXPECT_EQ(received.opcode, CqeOpcode::responder_send);
  EXPECT_EQ(received.byte_count, kSize);
  EXPECT_EQ(received.qpn, qps.b.number());
  EXPECT_EQ(received.user_index, qps.b.user_index());
  EXPECT_EQ(received.wqe_counter, 0);
  EXPECT_TRUE(b_holds(data));

  const Completion sent = wait(qps.a_cq);
  EXPECT_EQ(sent.opcode, CqeOpcode::requester);
  EXPECT_EQ(sent.send_opcode, WqeOpcode::send);
  EXPECT_EQ(sent.wqe_counter, index);
  EXPECT_EQ(sent.user_index, qps.a.user_index());
}

TEST_F(RcOperations, SendWithImmediateDeliversTheImmediate) {
  fill_a(64);
  qps.b.post_recv({qps.b_sge(0, 64)});
  qps.a.post_send(
      {.opcode = WqeOpcode::send_imm, .sges = {qps.a_sge(0, 64)}, .immediate = 0xfeedf00d});
  const Completion received = wait(qps.b_cq);
  EXPECT_EQ(received.opcode, CqeOpcode::responder_send_imm);
  EXPECT_EQ(received.immediate, 0xfeedf00d);
}

TEST_F(RcOperations, SendWithInvalidateTakesTheKeyOutOfUse) {
  const std::uint32_t key = pair.b.register_memory(qps.b_buffer, 4096, kAllAccess);
  qps.b.post_recv({qps.b_sge(0, 64)});
  qps.a.post_send(
      {.opcode = WqeOpcode::send_invalidate, .sges = {qps.a_sge(0, 8)}, .immediate = key});
  const Completion received = wait(qps.b_cq);
  EXPECT_EQ(received.opcode, CqeOpcode::responder_send_invalidate);
  EXPECT_EQ(received.immediate, key);
  EXPECT_EQ(pair.b.mkeys.check(key, {TestHost::kPd}, qps.b_buffer, 8, MemoryAccess::local_read),
            MemoryStatus::invalid_key);
}

TEST_F(RcOperations, EmptySendTakesOnePacketAndOneReceive) {
  qps.b.post_recv({qps.b_sge(0, 64)});
  qps.a.post_send({});
  EXPECT_EQ(wait(qps.b_cq).byte_count, 0U);
  EXPECT_TRUE(wait(qps.a_cq).ok());
}

TEST_F(RcOperations, WritePlacesDataWithoutAReceive) {
  const auto data = fill_a(kSize);
  qps.a.post_send({.opcode = WqeOpcode::rdma_write,
                   .sges = {qps.a_sge(0, kSize)},
                   .remote_address = qps.b_buffer + 100,
                   .rkey = qps.b_key});
  EXPECT_EQ(wait(qps.a_cq).send_opcode, WqeOpcode::rdma_write);
  EXPECT_TRUE(b_holds(data, 100));
  EXPECT_FALSE(qps.b_cq.poll().has_value()) << "the responder's application must not be told";
}

TEST_F(RcOperations, WriteWithImmediateUsesAReceiveButNotItsBuffer) {
  const auto data = fill_a(kSize);
  qps.b.post_recv({qps.b_sge(1 << 20, 64)});
  qps.a.post_send({.opcode = WqeOpcode::rdma_write_imm,
                   .sges = {qps.a_sge(0, kSize)},
                   .remote_address = qps.b_buffer,
                   .rkey = qps.b_key,
                   .immediate = 77});
  const Completion received = wait(qps.b_cq);
  EXPECT_EQ(received.opcode, CqeOpcode::responder_write_imm);
  EXPECT_EQ(received.immediate, 77U);
  EXPECT_EQ(received.byte_count, kSize);
  EXPECT_TRUE(b_holds(data));
}

TEST_F(RcOperations, ReadFetchesRemoteMemory) {
  const auto data = fill_b(kSize);
  qps.a.post_send({.opcode = WqeOpcode::rdma_read,
                   .sges = {qps.a_sge(64, kSize)},
                   .remote_address = qps.b_buffer,
                   .rkey = qps.b_key});
  const Completion done = wait(qps.a_cq);
  EXPECT_EQ(done.send_opcode, WqeOpcode::rdma_read);
  EXPECT_EQ(done.byte_count, kSize);
  EXPECT_TRUE(a_holds(data, 64));
}

TEST_F(RcOperations, EmptyReadAndWriteNeedNoValidKey) {
  qps.a.post_send({.opcode = WqeOpcode::rdma_read, .rkey = 0xdead});
  EXPECT_TRUE(wait(qps.a_cq).ok());
  qps.a.post_send({.opcode = WqeOpcode::rdma_write, .rkey = 0xdead});
  EXPECT_TRUE(wait(qps.a_cq).ok());
}

TEST_F(RcOperations, FetchAndAddReturnsTheOldValueAndAdds) {
  b_word(16) = 1000;
  qps.a.post_send({.opcode = WqeOpcode::atomic_fetch_add,
                   .sges = {qps.a_sge(0, 8)},
                   .remote_address = qps.b_buffer + 16,
                   .rkey = qps.b_key,
                   .swap_add = 5});
  EXPECT_EQ(wait(qps.a_cq).byte_count, 8U);
  EXPECT_EQ(a_word(0), 1000U);
  EXPECT_EQ(b_word(16), 1005U);
}

TEST_F(RcOperations, CompareAndSwapSwapsOnlyOnAMatch) {
  b_word(0) = 7;
  SendRequest request{.opcode = WqeOpcode::atomic_cmp_swap,
                      .sges = {qps.a_sge(0, 8)},
                      .remote_address = qps.b_buffer,
                      .rkey = qps.b_key,
                      .swap_add = 9,
                      .compare = 8};
  qps.a.post_send(request);
  wait(qps.a_cq);
  EXPECT_EQ(a_word(0), 7U);
  EXPECT_EQ(b_word(0), 7U) << "the comparison failed: the word stays";
  request.compare = 7;
  qps.a.post_send(request);
  wait(qps.a_cq);
  EXPECT_EQ(a_word(0), 7U);
  EXPECT_EQ(b_word(0), 9U);
}

TEST_F(RcOperations, BigEndianAtomicsActOnABigEndianWord) {
  pair.a.transport.config().host_endian_atomics = false;
  pair.b.transport.config().host_endian_atomics = false;
  b_word(0) = __builtin_bswap64(41);
  qps.a.post_send({.opcode = WqeOpcode::atomic_fetch_add,
                   .sges = {qps.a_sge(0, 8)},
                   .remote_address = qps.b_buffer,
                   .rkey = qps.b_key,
                   .swap_add = 1});
  wait(qps.a_cq);
  EXPECT_EQ(__builtin_bswap64(b_word(0)), 42U);
  EXPECT_EQ(__builtin_bswap64(a_word(0)), 41U);
}

TEST_F(RcOperations, InlineDataIsSentFromTheWqe) {
  const auto data = TestHost::pattern(200, 9);
  qps.b.post_recv({qps.b_sge(0, 256)});
  qps.a.post_send({.inline_data = data, .use_inline = true});
  EXPECT_EQ(wait(qps.b_cq).byte_count, 200U);
  EXPECT_TRUE(b_holds(data));
}

TEST_F(RcOperations, GatherAndScatterOverSeveralEntries) {
  const auto data = fill_a(5000);
  // Received in pieces that fit neither the packets nor the gather entries.
  qps.b.post_recv({qps.b_sge(0, 1), qps.b_sge(10'000, 1500), qps.b_sge(20'000, 4000)});
  qps.a.post_send({.sges = {qps.a_sge(0, 7), qps.a_sge(7, 2000), qps.a_sge(2007, 2993)}});
  EXPECT_EQ(wait(qps.b_cq).byte_count, 5000U);
  const std::span<const std::byte> all(data);
  EXPECT_TRUE(b_holds(all.subspan(0, 1), 0));
  EXPECT_TRUE(b_holds(all.subspan(1, 1500), 10'000));
  EXPECT_TRUE(b_holds(all.subspan(1501), 20'000));
}

TEST_F(RcOperations, WqesMayWrapTheRing) {
  // Each WQE takes two basic blocks, and the first begins at an odd one.
  TestQpOptions options;
  options.log_sq_size = 3;
  ConnectedQps small(pair, options);
  small.a.post_send({.opcode = WqeOpcode::nop});
  wait(small.a_cq);
  for (unsigned round = 0; round < 40; ++round) {
    const auto data = TestHost::pattern(90, round);
    small.b.post_recv({small.b_sge(0, 128)});
    small.a.post_send({.inline_data = data, .use_inline = true});
    ASSERT_TRUE(wait(small.b_cq).ok());
    ASSERT_TRUE(wait(small.a_cq).ok());
    const auto memory = pair.b.bytes(small.b_buffer, data.size());
    ASSERT_TRUE(std::equal(data.begin(), data.end(), memory.begin())) << "round " << round;
  }
}

TEST_F(RcOperations, UnsignalledRequestsCompleteSilently) {
  for (int i = 0; i < 3; ++i) qps.b.post_recv({qps.b_sge(0, 64)});
  qps.a.post_send({.sges = {qps.a_sge(0, 8)}, .signalled = false});
  qps.a.post_send({.sges = {qps.a_sge(0, 8)}, .signalled = false});
  const auto index = qps.a.post_send({.sges = {qps.a_sge(0, 8)}});
  pair.run();
  const auto completions = qps.a_cq.drain();
  ASSERT_EQ(completions.size(), 1U);
  EXPECT_EQ(completions[0].wqe_counter, index);
}

TEST_F(RcOperations, NopCompletesInOrder) {
  qps.b.post_recv({qps.b_sge(0, 64)});
  const auto first = qps.a.post_send({.sges = {qps.a_sge(0, 8)}});
  const auto nop = qps.a.post_send({.opcode = WqeOpcode::nop});
  pair.run();
  const auto completions = qps.a_cq.drain();
  ASSERT_EQ(completions.size(), 2U);
  EXPECT_EQ(completions[0].wqe_counter, first);
  EXPECT_EQ(completions[1].wqe_counter, nop);
}

TEST_F(RcOperations, LocalInvalidateTakesTheKeyOutOfUse) {
  const std::uint32_t key = pair.a.register_memory(qps.a_buffer, 4096, kAllAccess);
  qps.a.post_send({.opcode = WqeOpcode::umr, .immediate = key});
  EXPECT_TRUE(wait(qps.a_cq).ok());
  qps.a.post_send({.sges = {{qps.a_buffer, 8, key}}});
  EXPECT_EQ(wait(qps.a_cq).syndrome, prm::CqeSyndrome::local_protection);
}

TEST_F(RcOperations, FencedSendWaitsForTheReadBeforeIt) {
  bool read_answered = false;
  bool fence_kept = true;
  pair.on_delivery = [&](const ib::Packet& packet) {
    if (ib::is_rdma_read_response(packet.bth.opcode) && ib::ends_message(packet.bth.opcode)) {
      read_answered = true;
    }
    if (ib::is_send(packet.bth.opcode)) fence_kept = fence_kept && read_answered;
  };
  qps.b.post_recv({qps.b_sge(0, 64)});
  qps.a.write_send({.opcode = WqeOpcode::rdma_read,
                    .sges = {qps.a_sge(0, kSize)},
                    .remote_address = qps.b_buffer,
                    .rkey = qps.b_key});
  qps.a.post_send({.sges = {qps.a_sge(0, 8)}, .fence = true});
  wait(qps.a_cq);
  wait(qps.a_cq);
  EXPECT_TRUE(read_answered);
  EXPECT_TRUE(fence_kept) << "the SEND left before the READ was complete";
}

TEST_F(RcOperations, NoMoreReadsAreOutstandingThanMaxRdAtomic) {
  unsigned outstanding = 0;
  unsigned most = 0;
  pair.fate = [&](ib::Packet& packet) {
    if (ib::is_rdma_read_request(packet.bth.opcode)) most = std::max(most, ++outstanding);
    return PacketFate{};
  };
  pair.on_delivery = [&](const ib::Packet& packet) {
    if (ib::is_rdma_read_response(packet.bth.opcode) && ib::ends_message(packet.bth.opcode)) {
      --outstanding;
    }
  };
  const auto data = fill_b(20 * 3000);
  for (unsigned i = 0; i < 20; ++i) {
    qps.a.write_send({.opcode = WqeOpcode::rdma_read,
                      .sges = {qps.a_sge(i * 3000, 3000)},
                      .remote_address = qps.b_buffer + i * 3000,
                      .rkey = qps.b_key});
  }
  qps.a.ring();
  pair.run();
  EXPECT_EQ(qps.a_cq.drain().size(), 20U);
  EXPECT_EQ(most, 4U) << "log_sra_max is 2";
  EXPECT_TRUE(a_holds(data));
}

TEST_F(RcOperations, ManyMessagesArriveInOrderAndAcknowledgesCoalesce) {
  constexpr unsigned kCount = 1000;
  unsigned acks = 0;
  pair.on_delivery = [&](const ib::Packet& packet) { acks += ib::is_response(packet.bth.opcode); };
  std::vector<std::uint32_t> received;
  unsigned sent = 0;
  unsigned posted = 0;
  unsigned completed = 0;
  for (; posted < 64; ++posted) qps.b.post_recv({qps.b_sge(0, 64)});
  EXPECT_TRUE(pair.run_until([&] {
    while (auto c = qps.a_cq.poll()) completed += c->ok();
    while (auto c = qps.b_cq.poll()) {
      received.push_back(c->immediate);
      qps.b.post_recv({qps.b_sge(0, 64)});
    }
    for (; sent < kCount && sent < completed + 32; ++sent) {
      qps.a.post_send(
          {.opcode = WqeOpcode::send_imm, .sges = {qps.a_sge(0, 8)}, .immediate = sent});
    }
    return completed == kCount && received.size() == kCount;
  }));
  for (unsigned i = 0; i < received.size(); ++i) ASSERT_EQ(received[i], i);
  EXPECT_LT(acks, kCount / 4) << "acknowledges should be coalesced";
}

TEST_F(RcOperations, SolicitedBitReachesTheReceiversCqe) {
  qps.b.post_recv({qps.b_sge(0, 64)});
  qps.b.post_recv({qps.b_sge(0, 64)});
  qps.a.post_send({.sges = {qps.a_sge(0, 8)}, .solicited = true});
  EXPECT_TRUE(wait(qps.b_cq).solicited);
  qps.a.post_send({.sges = {qps.a_sge(0, 8)}});
  EXPECT_FALSE(wait(qps.b_cq).solicited);
}

TEST_F(RcOperations, LengthZeroInAGatherEntryMeansTwoGigabytes) {
  qps.a.post_send({.sges = {qps.a_sge(0, 0)}});
  // Longer than log_msg_max allows, and longer than the region.
  EXPECT_EQ(wait(qps.a_cq).syndrome, prm::CqeSyndrome::local_length);
}

TEST_F(RcOperations, PacketNumbersWrapAround) {
  ConnectedQps wrapping(pair, {}, 10, [](TestQp& a, TestQp& b) {
    a.attributes.next_send_psn = 0xfffff0;
    b.attributes.next_send_psn = 0xfffffe;
  });
  const auto data = TestHost::pattern(kSize, 4);
  pair.b.fill(wrapping.b_buffer, data);
  wrapping.a.post_send({.opcode = WqeOpcode::rdma_read,
                        .sges = {wrapping.a_sge(0, kSize)},
                        .remote_address = wrapping.b_buffer,
                        .rkey = wrapping.b_key});
  ASSERT_TRUE(wait(wrapping.a_cq).ok());
  const auto memory = pair.a.bytes(wrapping.a_buffer, kSize);
  EXPECT_TRUE(std::equal(data.begin(), data.end(), memory.begin()));
  for (int i = 0; i < 40; ++i) {
    wrapping.b.post_recv({wrapping.b_sge(0, 64)});
    wrapping.a.post_send({.sges = {wrapping.a_sge(0, 8)}});
    ASSERT_TRUE(wait(wrapping.a_cq).ok());
  }
}

TEST_F(RcOperations, LoopbackBetweenTwoQpsOfOneHost) {
  TestCq cq(pair.a);
  TestQp left(pair.a, cq, cq);
  TestQp right(pair.a, cq, cq);
  left.to_init();
  right.to_init();
  left.to_rtr(&right);
  right.to_rtr(&left);
  left.to_rts();
  right.to_rts();
  fill_a(64);
  left.post_send({.opcode = WqeOpcode::rdma_write,
                  .sges = {qps.a_sge(0, 64)},
                  .remote_address = qps.a_buffer + 4096,
                  .rkey = qps.a_key});
  EXPECT_TRUE(wait(cq).ok());
  EXPECT_EQ(a_word(0), a_word(4096));
}

TEST_F(RcOperations, ScatterToCqeDeliversSmallMessagesInTheCqe) {
  TestQpOptions options;
  options.cs_req = 32;
  options.cs_res = 32;
  ConnectedQps small(pair, options);
  const auto data = TestHost::pattern(24, 3);
  pair.a.fill(small.a_buffer, data);
  pair.b.fill(small.b_buffer + 512, data);
  small.b.post_recv({small.b_sge(0, 64)});
  small.a.post_send({.sges = {small.a_sge(0, 24)}});
  const Completion received = wait(small.b_cq);
  EXPECT_EQ(received.format, prm::CqeFormat::inline_32);
  EXPECT_EQ(received.byte_count, 24U);
  EXPECT_TRUE(std::equal(data.begin(), data.end(), received.inline_data.begin()));
  wait(small.a_cq);
  small.a.post_send({.opcode = WqeOpcode::rdma_read,
                     .sges = {small.a_sge(256, 24)},
                     .remote_address = small.b_buffer + 512,
                     .rkey = small.b_key});
  const Completion read = wait(small.a_cq);
  EXPECT_EQ(read.format, prm::CqeFormat::inline_32);
  EXPECT_TRUE(std::equal(data.begin(), data.end(), read.inline_data.begin()));
}

}  // namespace
}  // namespace softhca::transport_test
