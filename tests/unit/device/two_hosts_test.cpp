// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Reliable connected traffic between two devices, from firmware commands to completions.
#include "tests/support/two_hosts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "hw-model/device/config_space.h"
#include "hw-model/prm/commands_resources.h"
#include "hw-model/prm/eqe.h"

namespace softhca::test {
namespace {

using prm::CqeOpcode;
using prm::CqeSyndrome;
using prm::WqeOpcode;

constexpr std::uint32_t kPsnA = 0xfffff0;  // wraps soon
constexpr std::uint32_t kPsnB = 0x100;

class TwoHostsTest : public ::testing::Test {
 protected:
  /// One end: a CQ for both queues, a QP, a buffer.
  struct End {
    TwoHosts::Host* host;
    DriverCq cq;
    DriverQp qp;
    DriverMr mr;
    MiniDriver& driver() const { return host->driver; }
    std::uint8_t* data() const { return host->driver.memory().bytes(mr.address); }
  };

  End make_end(TwoHosts::Host& host, unsigned access = kAllAccess, const QpOptions& options = {}) {
    MiniDriver& driver = host.driver;
    const DriverCq cq = driver.create_cq(8);
    return {&host, cq, driver.create_qp(cq, cq, options), driver.allocate_mr(1 << 20, access)};
  }

  void connect(End& a, End& b, const QpTimers& timers = {}, const QpAccess& access = {}) {
    ASSERT_TRUE(a.driver().to_init(a.qp, access).ok());
    ASSERT_TRUE(b.driver().to_init(b.qp, access).ok());
    ASSERT_TRUE(a.driver().to_rtr(a.qp, b.qp.qpn, b.host->lid(), kPsnB, 5, access, timers).ok());
    ASSERT_TRUE(b.driver().to_rtr(b.qp, a.qp.qpn, a.host->lid(), kPsnA, 5, access, timers).ok());
    ASSERT_TRUE(a.driver().to_rts(a.qp, kPsnA, timers).ok());
    ASSERT_TRUE(b.driver().to_rts(b.qp, kPsnB, timers).ok());
  }

  std::optional<Completion> wait(End& end) {
    std::optional<Completion> completion;
    world.run_until([&] {
      completion = end.driver().poll_cq(end.cq);
      return completion.has_value();
    });
    return completion;
  }

  static void fill(std::uint8_t* data, std::size_t length, std::uint8_t seed) {
    std::iota(data, data + length, seed);
  }

  TwoHosts world;
};

TEST_F(TwoHostsTest, send_arrives_in_the_posted_buffer_with_a_completion_on_both_sides) {
  End a = make_end(*world.a);
  End b = make_end(*world.b);
  connect(a, b);
  constexpr std::uint32_t length = 10000;  // three packets of MTU 4096
  fill(a.data(), length, 1);
  b.driver().post_receive(b.qp, std::array<Sge, 1>{Sge{b.mr.address, 16384, b.mr.key}});
  SendRequest send;
  send.opcode = WqeOpcode::send_imm;
  send.immediate = 0x12345678;
  send.sges = {{a.mr.address, length, a.mr.key}};
  const std::uint16_t index = a.driver().post_send(a.qp, send);

  const auto sent = wait(a);
  ASSERT_TRUE(sent.has_value());
  EXPECT_EQ(sent->opcode, CqeOpcode::requester);
  EXPECT_EQ(sent->wqe_counter, index);
  EXPECT_EQ(sent->qpn, a.qp.qpn);
  const auto received = wait(b);
  ASSERT_TRUE(received.has_value());
  EXPECT_EQ(received->opcode, CqeOpcode::responder_send_imm);
  EXPECT_EQ(received->byte_count, length);
  EXPECT_EQ(received->immediate, 0x12345678U);
  EXPECT_EQ(received->user_index, b.qp.options.user_index);
  EXPECT_EQ(std::memcmp(a.data(), b.data(), length), 0);
}

TEST_F(TwoHostsTest, inline_send_needs_no_key) {
  End a = make_end(*world.a);
  End b = make_end(*world.b);
  connect(a, b);
  b.driver().post_receive(b.qp, std::array<Sge, 1>{Sge{b.mr.address, 64, b.mr.key}});
  SendRequest send;
  send.inline_data = {1, 2, 3, 4, 5};
  a.driver().post_send(a.qp, send);
  const auto received = wait(b);
  ASSERT_TRUE(received.has_value());
  EXPECT_EQ(received->byte_count, 5U);
  EXPECT_EQ(std::memcmp(b.data(), send.inline_data.data(), 5), 0);
}

TEST_F(TwoHostsTest, rdma_write_changes_remote_memory_and_completes_only_at_the_requester) {
  End a = make_end(*world.a);
  End b = make_end(*world.b);
  connect(a, b);
  constexpr std::uint32_t length = 65536 + 3;
  fill(a.data(), length, 7);
  SendRequest write;
  write.opcode = WqeOpcode::rdma_write;
  write.sges = {{a.mr.address, 100, a.mr.key}, {a.mr.address + 100, length - 100, a.mr.key}};
  write.remote_address = b.mr.address + 5;
  write.rkey = b.mr.key;
  a.driver().post_send(a.qp, write);
  const auto done = wait(a);
  ASSERT_TRUE(done.has_value());
  EXPECT_EQ(done->opcode, CqeOpcode::requester);
  EXPECT_EQ(std::memcmp(a.data(), b.data() + 5, length), 0);
  EXPECT_FALSE(b.driver().poll_cq(b.cq).has_value());
}

TEST_F(TwoHostsTest, nothing_moves_while_bus_mastering_is_off) {
  constexpr std::array<std::byte, 2> kOff{std::byte{2}, std::byte{0}};
  constexpr std::array<std::byte, 2> kOn{std::byte{6}, std::byte{0}};
  End a = make_end(*world.a);
  End b = make_end(*world.b);
  connect(a, b);
  constexpr std::uint32_t length = 20000;
  fill(a.data(), length, 7);
  SendRequest write;
  write.opcode = WqeOpcode::rdma_write;
  write.sges = {{a.mr.address, length, a.mr.key}};
  write.remote_address = b.mr.address;
  write.rkey = b.mr.key;
  a.driver().post_send(a.qp, write);
  ASSERT_TRUE(wait(a).has_value());  // Keys and queues are known by their pointers now.

  for (TwoHosts::Host* host : {world.a.get(), world.b.get()}) {
    fill(a.data(), length, host == world.a.get() ? 9 : 11);
    host->function.config_write(ConfigSpace::kCommand, kOff);
    a.driver().post_send(a.qp, write);
    // Not so long that the requester gives up.
    EXPECT_FALSE(world.run_until([&] { return a.driver().poll_cq(a.cq).has_value(); }, 4));
    EXPECT_NE(std::memcmp(a.data(), b.data(), length), 0);
    EXPECT_FALSE(host->function.failed());
    host->function.config_write(ConfigSpace::kCommand, kOn);
    const auto done = wait(a);
    ASSERT_TRUE(done.has_value());
    EXPECT_EQ(done->opcode, CqeOpcode::requester);
    EXPECT_EQ(std::memcmp(a.data(), b.data(), length), 0);
  }
}

TEST_F(TwoHostsTest, rdma_write_with_immediate_consumes_a_receive) {
  End a = make_end(*world.a);
  End b = make_end(*world.b);
  connect(a, b);
  b.driver().post_receive(b.qp, {});
  SendRequest write;
  write.opcode = WqeOpcode::rdma_write_imm;
  write.immediate = 99;
  write.sges = {{a.mr.address, 8, a.mr.key}};
  write.remote_address = b.mr.address;
  write.rkey = b.mr.key;
  a.driver().post_send(a.qp, write);
  const auto received = wait(b);
  ASSERT_TRUE(received.has_value());
  EXPECT_EQ(received->opcode, CqeOpcode::responder_write_imm);
  EXPECT_EQ(received->immediate, 99U);
  EXPECT_EQ(received->byte_count, 8U);
}

TEST_F(TwoHostsTest, rdma_read_brings_remote_memory) {
  End a = make_end(*world.a);
  End b = make_end(*world.b);
  connect(a, b);
  constexpr std::uint32_t length = 50000;
  fill(b.data(), length, 3);
  SendRequest read;
  read.opcode = WqeOpcode::rdma_read;
  read.sges = {{a.mr.address, length, a.mr.key}};
  read.remote_address = b.mr.address;
  read.rkey = b.mr.key;
  a.driver().post_send(a.qp, read);
  const auto done = wait(a);
  ASSERT_TRUE(done.has_value());
  EXPECT_EQ(done->opcode, CqeOpcode::requester);
  EXPECT_EQ(done->byte_count, length);
  EXPECT_EQ(std::memcmp(a.data(), b.data(), length), 0);
}

TEST_F(TwoHostsTest, atomics_act_on_host_order_words_and_return_the_old_value) {
  End a = make_end(*world.a);
  End b = make_end(*world.b);
  connect(a, b);
  std::uint64_t word = 40;
  std::memcpy(b.data(), &word, 8);
  SendRequest atomic;
  atomic.opcode = WqeOpcode::atomic_fetch_add;
  atomic.swap_add = 2;
  atomic.sges = {{a.mr.address, 8, a.mr.key}};
  atomic.remote_address = b.mr.address;
  atomic.rkey = b.mr.key;
  a.driver().post_send(a.qp, atomic);
  ASSERT_TRUE(wait(a).has_value());
  std::memcpy(&word, b.data(), 8);
  EXPECT_EQ(word, 42U);
  std::memcpy(&word, a.data(), 8);
  EXPECT_EQ(word, 40U);

  atomic.opcode = WqeOpcode::atomic_cmp_swap;
  atomic.compare = 42;
  atomic.swap_add = 7;
  a.driver().post_send(a.qp, atomic);
  ASSERT_TRUE(wait(a).has_value());
  std::memcpy(&word, b.data(), 8);
  EXPECT_EQ(word, 7U);
}

TEST_F(TwoHostsTest, many_messages_wrap_rings_and_complete_in_order) {
  End a = make_end(*world.a);
  End b = make_end(*world.b);
  connect(a, b);
  constexpr unsigned total = 500;
  unsigned posted = 0;
  unsigned received = 0;
  unsigned completed = 0;
  const bool done = world.run_until([&] {
    while (b.qp.rq_wqes < total && b.qp.rq_wqes - received < 32) {
      b.driver().post_receive(b.qp, std::array<Sge, 1>{Sge{b.mr.address, 4096, b.mr.key}});
    }
    while (posted < total && posted - completed < 32) {
      SendRequest send;
      // A length of 0 in a send WQE means 2 GiB, so an empty message has no entry.
      if (posted % 4096 != 0) send.sges = {{a.mr.address, posted % 4096, a.mr.key}};
      a.driver().post_send(a.qp, send);
      ++posted;
    }
    while (const auto completion = a.driver().poll_cq(a.cq)) {
      EXPECT_EQ(completion->opcode, CqeOpcode::requester);
      ++completed;
    }
    while (const auto completion = b.driver().poll_cq(b.cq)) {
      EXPECT_EQ(completion->byte_count, received % 4096);
      ++received;
    }
    return completed == total && received == total;
  });
  EXPECT_TRUE(done) << "completed " << completed << ", received " << received;
}

TEST_F(TwoHostsTest, a_wrong_key_is_a_remote_access_error_and_flushes_what_follows) {
  End a = make_end(*world.a);
  End b = make_end(*world.b);
  connect(a, b);
  SendRequest write;
  write.opcode = WqeOpcode::rdma_write;
  write.sges = {{a.mr.address, 8, a.mr.key}};
  write.remote_address = b.mr.address;
  write.rkey = b.mr.key ^ 1;
  a.driver().post_send(a.qp, write);
  write.rkey = b.mr.key;
  a.driver().post_send(a.qp, write);
  const auto failed = wait(a);
  ASSERT_TRUE(failed.has_value());
  EXPECT_EQ(failed->opcode, CqeOpcode::requester_error);
  EXPECT_EQ(failed->syndrome, static_cast<std::uint8_t>(CqeSyndrome::remote_access));
  const auto flushed = wait(a);
  ASSERT_TRUE(flushed.has_value());
  EXPECT_EQ(flushed->syndrome, static_cast<std::uint8_t>(CqeSyndrome::flushed));
  EXPECT_EQ(flushed->vendor_syndrome, prm::VendorSyndrome::flushed);
  EXPECT_EQ(a.driver().query_state(a.qp), prm::QpState::error);
}

TEST_F(TwoHostsTest, a_write_without_permission_is_refused) {
  End a = make_end(*world.a);
  End b = make_end(*world.b, kLocalRead | kLocalWrite | kRemoteRead);
  connect(a, b);
  SendRequest write;
  write.opcode = WqeOpcode::rdma_write;
  write.sges = {{a.mr.address, 8, a.mr.key}};
  write.remote_address = b.mr.address;
  write.rkey = b.mr.key;
  a.driver().post_send(a.qp, write);
  const auto failed = wait(a);
  ASSERT_TRUE(failed.has_value());
  EXPECT_EQ(failed->syndrome, static_cast<std::uint8_t>(CqeSyndrome::remote_access));
}

TEST_F(TwoHostsTest, a_local_key_of_another_range_is_a_local_protection_error) {
  End a = make_end(*world.a);
  End b = make_end(*world.b);
  connect(a, b);
  SendRequest write;
  write.opcode = WqeOpcode::rdma_write;
  write.sges = {{a.mr.address + a.mr.length - 4, 8, a.mr.key}};
  write.remote_address = b.mr.address;
  write.rkey = b.mr.key;
  a.driver().post_send(a.qp, write);
  const auto failed = wait(a);
  ASSERT_TRUE(failed.has_value());
  EXPECT_EQ(failed->syndrome, static_cast<std::uint8_t>(CqeSyndrome::local_protection));
}

TEST_F(TwoHostsTest, a_send_without_receive_retries_until_one_is_posted) {
  End a = make_end(*world.a);
  End b = make_end(*world.b);
  connect(a, b);
  SendRequest send;
  send.sges = {{a.mr.address, 8, a.mr.key}};
  a.driver().post_send(a.qp, send);
  world.run_until([] { return false; }, 1000);
  const auto early = a.driver().poll_cq(a.cq);
  ASSERT_FALSE(early.has_value()) << "syndrome " << unsigned{early->syndrome};
  b.driver().post_receive(b.qp, std::array<Sge, 1>{Sge{b.mr.address, 64, b.mr.key}});
  const auto done = wait(a);
  ASSERT_TRUE(done.has_value());
  EXPECT_EQ(done->opcode, CqeOpcode::requester);
}

TEST_F(TwoHostsTest, rnr_retries_are_counted) {
  End a = make_end(*world.a);
  End b = make_end(*world.b);
  connect(a, b, QpTimers{.rnr_retry = 2});
  SendRequest send;
  send.sges = {{a.mr.address, 8, a.mr.key}};
  a.driver().post_send(a.qp, send);
  const auto failed = wait(a);
  ASSERT_TRUE(failed.has_value());
  EXPECT_EQ(failed->syndrome, static_cast<std::uint8_t>(CqeSyndrome::rnr_retry_exceeded));
}

TEST_F(TwoHostsTest, a_peer_that_is_gone_is_a_transport_retry_error) {
  End a = make_end(*world.a);
  End b = make_end(*world.b);
  connect(a, b, QpTimers{.ack_timeout = 8, .retry_count = 3});
  ASSERT_TRUE(b.driver().to_error(b.qp).ok());
  SendRequest write;
  write.opcode = WqeOpcode::rdma_write;
  write.sges = {{a.mr.address, 8, a.mr.key}};
  write.remote_address = b.mr.address;
  write.rkey = b.mr.key;
  a.driver().post_send(a.qp, write);
  const auto failed = wait(a);
  ASSERT_TRUE(failed.has_value());
  EXPECT_EQ(failed->syndrome, static_cast<std::uint8_t>(CqeSyndrome::transport_retry_exceeded));
  EXPECT_EQ(failed->vendor_syndrome, prm::VendorSyndrome::transport_retry);
}

TEST_F(TwoHostsTest, an_armed_cq_raises_one_event_for_the_next_completion) {
  End a = make_end(*world.a);
  End b = make_end(*world.b);
  connect(a, b);
  MiniDriver& driver = a.driver();
  const unsigned before = world.a->interrupts.count(MiniDriver::kCompletionVector);
  driver.arm_cq(a.cq);
  SendRequest write;
  write.opcode = WqeOpcode::rdma_write;
  write.sges = {{a.mr.address, 8, a.mr.key}};
  write.remote_address = b.mr.address;
  write.rkey = b.mr.key;
  driver.post_send(a.qp, write);
  driver.post_send(a.qp, write);
  ASSERT_TRUE(wait(a).has_value());
  ASSERT_TRUE(wait(a).has_value());
  const auto event = driver.poll_eq(driver.completion_eq());
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->type, 0);
  EXPECT_EQ(prm::CompletionEventData::cqn::get(event->data.data()), a.cq.cqn);
  EXPECT_FALSE(driver.poll_eq(driver.completion_eq()).has_value())
      << "an arm is good for one event";
  EXPECT_EQ(world.a->interrupts.count(MiniDriver::kCompletionVector), before + 1);
}

TEST_F(TwoHostsTest, a_shared_receive_queue_serves_its_queue_pairs) {
  DriverSrq srq = world.b->driver.create_srq(4);
  End a = make_end(*world.a);
  QpOptions options;
  options.srqn = srq.srqn;
  End b = make_end(*world.b, kAllAccess, options);
  connect(a, b);
  for (std::uint16_t i = 0; i < 4; ++i) {
    world.b->driver.post_srq_receive(
        srq, i, std::array<Sge, 1>{Sge{b.mr.address + i * 64ULL, 64, b.mr.key}});
  }
  for (std::uint8_t i = 0; i < 4; ++i) {
    SendRequest send;
    send.inline_data = {i};
    a.driver().post_send(a.qp, send);
  }
  for (std::uint8_t i = 0; i < 4; ++i) {
    const auto received = wait(b);
    ASSERT_TRUE(received.has_value());
    EXPECT_EQ(received->wqe_counter, i);
    EXPECT_EQ(b.data()[i * 64], i);
  }
}

TEST_F(TwoHostsTest, unreliable_datagrams_carry_40_bytes_of_header_room) {
  QpOptions options;
  options.type = prm::QpServiceType::ud;
  End a = make_end(*world.a, kAllAccess, options);
  End b = make_end(*world.b, kAllAccess, options);
  constexpr std::uint32_t qkey = 0x11111111;
  for (End* end : {&a, &b}) {
    ASSERT_TRUE(end->driver().to_init(end->qp, {}, qkey).ok());
    ASSERT_TRUE(end->driver().to_rtr(end->qp, 0, 0, 0).ok());
    ASSERT_TRUE(end->driver().to_rts(end->qp, 0).ok());
  }
  b.driver().post_receive(b.qp, std::array<Sge, 1>{Sge{b.mr.address, 256, b.mr.key}});
  SendRequest send;
  send.inline_data = {9, 8, 7};
  send.remote_qpn = b.qp.qpn;
  send.qkey = qkey;
  send.dlid = b.host->lid();
  a.driver().post_send(a.qp, send);
  ASSERT_TRUE(wait(a).has_value());
  const auto received = wait(b);
  ASSERT_TRUE(received.has_value());
  EXPECT_EQ(received->byte_count, 43U);
  EXPECT_EQ(received->source_qpn, a.qp.qpn);
  EXPECT_EQ(b.data()[40], 9);
}

TEST_F(TwoHostsTest, a_multicast_reaches_every_member_once_and_not_its_sender) {
  constexpr std::uint32_t qkey = 0x11111111;
  constexpr std::array<std::uint8_t, 16> group{0xff, 0x12, 0xa0, 0x1b, 0xff, 0xff, 1};
  QpOptions options;
  options.type = prm::QpServiceType::ud;
  std::vector<End> ends;  // The sender, another member on its host, two on the other host.
  for (TwoHosts::Host* host : {world.a.get(), world.a.get(), world.b.get(), world.b.get()}) {
    End& end = ends.emplace_back(make_end(*host, kAllAccess, options));
    ASSERT_TRUE(end.driver().to_init(end.qp, {}, qkey).ok());
    ASSERT_TRUE(end.driver().to_rtr(end.qp, 0, 0, 0).ok());
    ASSERT_TRUE(end.driver().to_rts(end.qp, 0).ok());
    CommandBuffer attach(prm::CommandOpcode::attach_to_mcg, prm::AttachToMcgInput::size);
    attach.set<prm::AttachToMcgInput::qpn>(end.qp.qpn);
    std::ranges::copy(group, attach.at<prm::AttachToMcgInput::multicast_gid>());
    end.driver().must(attach);
    end.driver().must(attach);  // Attached twice is attached (IBA 11.3.1.1).
    for (std::uint32_t i = 0; i < 4; ++i) {
      end.driver().post_receive(end.qp,
                                std::array<Sge, 1>{Sge{end.mr.address + i * 256, 256, end.mr.key}});
    }
  }
  SendRequest send;
  send.inline_data = {7};
  send.remote_qpn = 0xffffff;
  send.qkey = qkey;
  send.dlid = 0xc003;
  send.dgid = group;
  ends[0].driver().post_send(ends[0].qp, send);
  for (unsigned round = 0; round < 1000; ++round) world.step();
  for (End& end : ends) {
    const auto first = end.driver().poll_cq(end.cq);
    ASSERT_TRUE(first.has_value());
    EXPECT_EQ(first->opcode, &end == &ends[0] ? CqeOpcode::requester : CqeOpcode::responder_send);
    EXPECT_FALSE(end.driver().poll_cq(end.cq).has_value());
  }
}

TEST_F(TwoHostsTest, both_ends_may_be_on_one_host) {
  End a = make_end(*world.a);
  End b = make_end(*world.a);
  connect(a, b);
  fill(a.data(), 5000, 2);
  SendRequest write;
  write.opcode = WqeOpcode::rdma_write;
  write.sges = {{a.mr.address, 5000, a.mr.key}};
  write.remote_address = b.mr.address;
  write.rkey = b.mr.key;
  a.driver().post_send(a.qp, write);
  ASSERT_TRUE(wait(a).has_value());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), 5000), 0);
}

}  // namespace
}  // namespace softhca::test
