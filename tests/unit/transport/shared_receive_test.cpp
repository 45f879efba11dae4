// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "tests/support/transport_pair.h"

// QPs that share an SRQ, and memory that is not there yet.
namespace softhca::transport_test {
namespace {

using prm::CqeOpcode;
using prm::CqeSyndrome;

class SharedReceive : public ::testing::Test {
 protected:
  static constexpr unsigned kQps = 3;
  SharedReceive()
      : a_buffer(pair.a.allocate(1 << 20, 4096)),
        b_buffer(pair.b.allocate(1 << 20, 4096)),
        a_key(pair.a.register_memory(a_buffer, 1 << 20, kAllAccess)),
        b_key(pair.b.register_memory(b_buffer, 1 << 20, kAllAccess)) {
    for (unsigned i = 0; i < kQps; ++i) {
      a.push_back(std::make_unique<TestQp>(pair.a, a_cq, a_cq));
      TestQpOptions options;
      options.srq = &srq;
      b.push_back(std::make_unique<TestQp>(pair.b, b_cq, b_cq, options));
      a[i]->connect(*b[i]);
      b[i]->connect(*a[i]);
    }
  }
  std::uint16_t post(std::uint64_t offset, std::uint32_t length) {
    const std::array sges{Sge{b_buffer + offset, length, b_key}};
    return srq.post(sges);
  }
  Completion wait(TestCq& cq) {
    std::optional<Completion> completion;
    EXPECT_TRUE(pair.run_until([&] { return (completion = cq.poll()).has_value(); }))
        << "no completion came";
    return completion.value_or(Completion{});
  }

  TransportPair pair;
  std::uint64_t a_buffer;
  std::uint64_t b_buffer;
  std::uint32_t a_key;
  std::uint32_t b_key;
  TestCq a_cq{pair.a};
  TestCq b_cq{pair.b};
  TestSrq srq{pair.b};
  std::vector<std::unique_ptr<TestQp>> a;
  std::vector<std::unique_ptr<TestQp>> b;
};

TEST_F(SharedReceive, MessagesOfAllQpsUseItsEntriesInOrder) {
  for (unsigned i = 0; i < 200; ++i) {
    const auto entry = post(i * 64 % 4096, 64);
    a[i % kQps]->post_send({.sges = {{a_buffer, 8, a_key}}});
    const Completion received = wait(b_cq);
    ASSERT_TRUE(received.ok());
    EXPECT_EQ(received.wqe_counter, entry);
    EXPECT_EQ(received.user_index, b[i % kQps]->user_index());
    srq.give_back(received.wqe_counter);
    ASSERT_TRUE(wait(a_cq).ok());
  }
}

TEST_F(SharedReceive, AnEmptyQueueIsReceiverNotReady) {
  a[0]->post_send({.sges = {{a_buffer, 8, a_key}}});
  pair.run_for(10'000);
  EXPECT_EQ(b[0]->query().counters.rnr_naks_sent, 1U);
  post(0, 64);
  EXPECT_TRUE(wait(a_cq).ok());
}

TEST_F(SharedReceive, TheLimitEventComesOnceWhenFewerAreLeft) {
  for (int i = 0; i < 4; ++i) post(0, 64);
  srq.device().arm_limit(3);
  a[0]->post_send({.sges = {{a_buffer, 8, a_key}}});
  wait(a_cq);
  EXPECT_EQ(pair.b.events.count(EventType::srq_limit), 0U) << "three are left: not below the limit";
  a[0]->post_send({.sges = {{a_buffer, 8, a_key}}});
  wait(a_cq);
  EXPECT_EQ(pair.b.events.count(EventType::srq_limit), 1U);
  EXPECT_EQ(srq.device().limit(), 0U) << "disarmed";
  a[0]->post_send({.sges = {{a_buffer, 8, a_key}}});
  wait(a_cq);
  EXPECT_EQ(pair.b.events.count(EventType::srq_limit), 1U);
}

TEST_F(SharedReceive, AQpInErrorReportsTheLastWqeOnceAndLeavesTheQueueAlone) {
  post(0, 64);
  EXPECT_EQ(b[0]->modify(QpTransition::to_error), ModifyResult::ok);
  pair.run_for(1'000'000);
  EXPECT_EQ(pair.b.events.count(EventType::srq_last_wqe), 1U);
  EXPECT_TRUE(b_cq.drain().empty());
  a[1]->post_send({.sges = {{a_buffer, 8, a_key}}});
  EXPECT_TRUE(wait(b_cq).ok()) << "the others go on";
}

TEST_F(SharedReceive, AReceiveInUseIsFlushedWithItsEntry) {
  const auto entry = post(0, 100'000);
  // The first half of a message, then the sender is gone.
  pair.fate = [n = 0](ib::Packet&) mutable {
    PacketFate what;
    what.drop = n++ >= 4;
    return what;
  };
  a[0]->post_send({.sges = {{a_buffer, 10'000, a_key}}});
  pair.run_for(100'000);
  EXPECT_EQ(b[0]->modify(QpTransition::to_error), ModifyResult::ok);
  const Completion flushed = wait(b_cq);
  EXPECT_EQ(flushed.syndrome, CqeSyndrome::flushed);
  EXPECT_EQ(flushed.wqe_counter, entry);
}

TEST_F(SharedReceive, ALinkOutsideTheQueuePutsItInError) {
  post(0, 64);
  post(0, 64);
  // Entry 0 names entry 500 as its successor.
  auto* wqe = reinterpret_cast<std::uint8_t*>(pair.b.at(srq.ring()));
  prm::NextSegment::next_wqe_index::set(wqe, 500);
  a[0]->post_send({.sges = {{a_buffer, 8, a_key}}});
  EXPECT_EQ(wait(a_cq).syndrome, CqeSyndrome::remote_operation);
  EXPECT_EQ(pair.b.events.count(EventType::srq_catastrophic), 1U);
  EXPECT_TRUE(srq.device().in_error());
}

TEST_F(SharedReceive, ACyclicListCostsNoMoreThanItsCounter) {
  post(0, 64);
  post(0, 64);
  auto* wqe = reinterpret_cast<std::uint8_t*>(pair.b.at(srq.ring()));
  prm::NextSegment::next_wqe_index::set(wqe, 0);
  for (int i = 0; i < 2; ++i) {
    a[0]->post_send({.sges = {{a_buffer, 8, a_key}}});
    EXPECT_EQ(wait(b_cq).wqe_counter, 0U);
  }
  a[0]->post_send({.sges = {{a_buffer, 8, a_key}}});
  pair.run_for(10'000);
  EXPECT_EQ(b[0]->query().counters.rnr_naks_sent, 1U);
}

/// Application memory that only calls reach.
class CalledMemory : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kIova = 0x7000'0000;
  static constexpr std::size_t kSize = 1 << 20;
  CalledMemory() {
    map(pair.a, a_memory);
    map(pair.b, b_memory);
    a_key = pair.a.register_memory(kIova, kSize, kAllAccess);
    b_key = pair.b.register_memory(kIova, kSize, kAllAccess);
    const auto data = TestHost::pattern(kSize, 1);
    std::copy(data.begin(), data.end(), a_memory->bytes.begin());
  }
  static void map(TestHost& host, const std::shared_ptr<CallMemory>& memory) {
    ASSERT_EQ(host.dma.map({.iova = kIova, .size = kSize, .base = nullptr, .backing = memory}),
              std::errc{});
  }
  SendRequest request(prm::WqeOpcode opcode, std::uint32_t size) const {
    return {
        .opcode = opcode, .sges = {{kIova, size, a_key}}, .remote_address = kIova, .rkey = b_key};
  }
  bool same(std::size_t size) {
    return std::equal(a_memory->bytes.begin(),
                      a_memory->bytes.begin() + static_cast<std::ptrdiff_t>(size),
                      b_memory->bytes.begin());
  }
  bool completed() {
    if (auto c = qps.a_cq.poll()) {
      EXPECT_TRUE(c->ok());
      return true;
    }
    return false;
  }

  TransportPair pair;
  ConnectedQps qps{pair};
  std::shared_ptr<CallMemory> a_memory = std::make_shared<CallMemory>(kSize);
  std::shared_ptr<CallMemory> b_memory = std::make_shared<CallMemory>(kSize);
  std::uint32_t a_key = 0;
  std::uint32_t b_key = 0;
};

TEST_F(CalledMemory, PayloadIsReadInLargePieces) {
  qps.a.post_send(request(prm::WqeOpcode::rdma_write, 1 << 20));
  EXPECT_TRUE(pair.run_until([&] { return completed(); }));
  EXPECT_TRUE(same(1 << 20));
  // What one turn may send: 64 packets of 1 KiB, less those it received.
  EXPECT_GE(a_memory->reads, 16U);
  EXPECT_LE(a_memory->reads, 20U);
}

TEST_F(CalledMemory, ASendWaitsForItsMemory) {
  a_memory->pending = true;
  qps.a.post_send(request(prm::WqeOpcode::rdma_write, 100'000));
  pair.run_for(1'000'000'000);
  EXPECT_EQ(pair.packets(), 0U);
  EXPECT_EQ(qps.a.query().stall, "a send WQE waits for host memory");
  a_memory->pending = false;
  pair.a.transport.memory_arrived();
  EXPECT_TRUE(pair.run_until([&] { return completed(); }));
  EXPECT_TRUE(same(100'000));
}

TEST_F(CalledMemory, AReceivedPacketWaitsForItsMemoryAndCommitsNothingBefore) {
  b_memory->pending = true;
  qps.a.post_send(request(prm::WqeOpcode::rdma_write, 100'000));
  pair.run_for(1'000'000);
  EXPECT_EQ(qps.b.query().attributes.next_rcv_psn, 0U);
  EXPECT_EQ(qps.b.query().stall, "a received packet waits for host memory");
  b_memory->pending = false;
  pair.b.transport.memory_arrived();
  EXPECT_TRUE(pair.run_until([&] { return completed(); }));
  EXPECT_TRUE(same(100'000));
}

TEST_F(CalledMemory, AReadResponseWaitsForItsMemory) {
  std::copy(a_memory->bytes.begin(), a_memory->bytes.end(), b_memory->bytes.begin());
  std::fill(a_memory->bytes.begin(), a_memory->bytes.end(), std::byte{0});
  b_memory->pending = true;
  qps.a.post_send(request(prm::WqeOpcode::rdma_read, 100'000));
  pair.run_for(1'000'000);
  EXPECT_EQ(qps.b.query().stall, "an RDMA READ response waits for host memory");
  b_memory->pending = false;
  pair.b.transport.memory_arrived();
  EXPECT_TRUE(pair.run_until([&] { return completed(); }));
  EXPECT_TRUE(same(100'000));
}

TEST_F(CalledMemory, AnAtomicWaitsForItsMemoryAndIsDoneOnce) {
  b_memory->pending = true;
  std::fill_n(b_memory->bytes.begin(), 8, std::byte{0});
  auto atomic = request(prm::WqeOpcode::atomic_fetch_add, 8);
  atomic.swap_add = 3;
  qps.a.post_send(atomic);
  pair.run_for(300'000'000);  // Long enough for repetitions to arrive.
  b_memory->pending = false;
  pair.b.transport.memory_arrived();
  EXPECT_TRUE(pair.run_until([&] { return completed(); }));
  EXPECT_EQ(b_memory->bytes[0], std::byte{3});
}

TEST_F(CalledMemory, AWaitingQpDoesNotHoldUpOthers) {
  a_memory->pending = true;
  qps.a.post_send(request(prm::WqeOpcode::rdma_write, 1000));
  ConnectedQps others(pair);
  others.a.post_send({.opcode = prm::WqeOpcode::rdma_write,
                      .sges = {others.a_sge(0, 100'000)},
                      .remote_address = others.b_buffer,
                      .rkey = others.b_key});
  EXPECT_TRUE(pair.run_until([&] { return others.a_cq.poll().has_value(); }));
}

}  // namespace
}  // namespace softhca::transport_test
