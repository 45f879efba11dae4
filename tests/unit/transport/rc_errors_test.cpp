// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <gtest/gtest.h>

#include <algorithm>

#include "hw-model/ib/opcodes.h"
#include "tests/support/transport_pair.h"

// What goes wrong in RC, what both sides are told, and the flush that follows
// (IBA 9.9, 10.3.1, 10.7.3.1).
namespace softhca::transport_test {
namespace {

using prm::CqeOpcode;
using prm::CqeSyndrome;
using prm::WqeOpcode;

class RcErrors : public ::testing::Test {
 protected:
  Completion wait(TestCq& cq) {
    std::optional<Completion> completion;
    EXPECT_TRUE(pair.run_until([&] { return (completion = cq.poll()).has_value(); }))
        << "no completion came";
    return completion.value_or(Completion{});
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
  SendRequest atomic_request() {
    return {.opcode = WqeOpcode::atomic_fetch_add,
            .sges = {qps.a_sge(0, 8)},
            .remote_address = qps.b_buffer,
            .rkey = qps.b_key,
            .swap_add = 1};
  }
  void expect_states(prm::QpState a, prm::QpState b) {
    pair.run_for(1'000'000);
    EXPECT_EQ(qps.a.query().state, a);
    EXPECT_EQ(qps.b.query().state, b);
  }
  void expect_remote_error(const SendRequest& request, CqeSyndrome syndrome, EventType event) {
    qps.a.post_send(request);
    EXPECT_EQ(wait(qps.a_cq).syndrome, syndrome);
    expect_states(prm::QpState::error, prm::QpState::error);
    EXPECT_EQ(pair.b.events.count(event), 1U);
  }

  TransportPair pair;
  ConnectedQps qps{pair};
};

TEST_F(RcErrors, AWrongRkeyIsARemoteAccessError) {
  auto request = write_request(8);
  request.rkey ^= 1;  // Other variant byte of the same index.
  qps.a.post_send(request);
  const Completion failed = wait(qps.a_cq);
  EXPECT_EQ(failed.opcode, CqeOpcode::requester_error);
  EXPECT_EQ(failed.syndrome, CqeSyndrome::remote_access);
  EXPECT_EQ(failed.vendor, prm::VendorSyndrome::remote_access);
  EXPECT_EQ(failed.send_opcode, WqeOpcode::rdma_write);
  EXPECT_EQ(failed.user_index, qps.a.user_index());
  expect_states(prm::QpState::error, prm::QpState::error);
  EXPECT_EQ(pair.b.events.count(EventType::wq_access_error), 1U);
}

TEST_F(RcErrors, AWriteBeyondTheRegionChangesNothing) {
  auto request = write_request(4096);
  request.remote_address = qps.b_buffer + ConnectedQps::kBufferSize - 2000;
  pair.a.fill(qps.a_buffer, TestHost::pattern(4096, 1));
  qps.a.post_send(request);
  EXPECT_EQ(wait(qps.a_cq).syndrome, CqeSyndrome::remote_access);
  const auto tail = pair.b.bytes(request.remote_address, 2000);
  EXPECT_TRUE(std::all_of(tail.begin(), tail.end(), [](std::byte b) { return b == std::byte{0}; }));
}

TEST_F(RcErrors, AnRkeyOfAnotherProtectionDomainIsRefused) {
  auto request = read_request(8);
  request.rkey = pair.b.register_memory(qps.b_buffer, 4096, kAllAccess, TestHost::kPd + 1);
  expect_remote_error(request, CqeSyndrome::remote_access, EventType::wq_access_error);
}

TEST_F(RcErrors, AKeyWithoutTheRightIsRefused) {
  auto request = read_request(8);
  request.rkey = pair.b.register_memory(qps.b_buffer, 4096, MemoryAccess::remote_write);
  expect_remote_error(request, CqeSyndrome::remote_access, EventType::wq_access_error);
}

TEST_F(RcErrors, AQpWithoutRemoteWriteRefusesTheRequest) {
  qps.b.attributes.remote_write = false;
  qps.b.modify(QpTransition::rts_to_rts, prm::kOptParamRwe);
  expect_remote_error(write_request(8), CqeSyndrome::remote_invalid_request,
                      EventType::wq_invalid_request);
}

TEST_F(RcErrors, AQpWithoutRemoteReadRefusesTheRequest) {
  qps.b.attributes.remote_read = false;
  qps.b.modify(QpTransition::rts_to_rts, prm::kOptParamRre);
  expect_remote_error(read_request(8), CqeSyndrome::remote_invalid_request,
                      EventType::wq_invalid_request);
}

TEST_F(RcErrors, AQpWithoutRemoteAtomicRefusesTheRequest) {
  qps.b.attributes.remote_atomic = false;
  qps.b.modify(QpTransition::rts_to_rts, prm::kOptParamRae);
  expect_remote_error(atomic_request(), CqeSyndrome::remote_invalid_request,
                      EventType::wq_invalid_request);
}

TEST_F(RcErrors, AnUnalignedAtomicIsAnInvalidRequest) {
  auto request = atomic_request();
  request.remote_address += 4;
  expect_remote_error(request, CqeSyndrome::remote_invalid_request, EventType::wq_invalid_request);
}

TEST_F(RcErrors, AnAtomicNeedsTheAtomicRightOfTheKey) {
  auto request = atomic_request();
  request.rkey = pair.b.register_memory(qps.b_buffer, 4096,
                                        MemoryAccess::remote_read | MemoryAccess::remote_write);
  expect_remote_error(request, CqeSyndrome::remote_access, EventType::wq_access_error);
}

TEST_F(RcErrors, MoreReadsThanTheResponderHasResourcesForAreAnInvalidRequest) {
  qps.b.attributes.log_rra_max = 0;
  qps.b.modify(QpTransition::rts_to_rts, prm::kOptParamRraMax);
  for (int i = 0; i < 4; ++i) qps.a.write_send(read_request(100'000));
  qps.a.ring();
  EXPECT_EQ(wait(qps.a_cq).send_opcode, WqeOpcode::rdma_read);
  pair.run_for(1'000'000);
  EXPECT_EQ(qps.a.query().state, prm::QpState::error);
}

TEST_F(RcErrors, AWrongLkeyIsALocalProtectionErrorAndNothingIsSent) {
  qps.a.post_send({.sges = {{qps.a_buffer, 8, qps.a_key + 0x100}}});
  const Completion failed = wait(qps.a_cq);
  EXPECT_EQ(failed.syndrome, CqeSyndrome::local_protection);
  EXPECT_EQ(failed.vendor, 0x51);
  EXPECT_EQ(pair.packets(), 0U);
  expect_states(prm::QpState::error, prm::QpState::rts);
}

TEST_F(RcErrors, AMessageLongerThanTheReceiveBufferFailsOnBothSides) {
  qps.b.post_recv({qps.b_sge(0, 1000)});
  qps.a.post_send({.sges = {qps.a_sge(0, 3000)}});
  const Completion received = wait(qps.b_cq);
  EXPECT_EQ(received.opcode, CqeOpcode::responder_error);
  EXPECT_EQ(received.syndrome, CqeSyndrome::local_length);
  EXPECT_EQ(wait(qps.a_cq).syndrome, CqeSyndrome::remote_invalid_request);
  expect_states(prm::QpState::error, prm::QpState::error);
}

TEST_F(RcErrors, AReceiveBufferWithAWrongLkeyFailsOnBothSides) {
  qps.b.post_recv({Sge{qps.b_buffer, 1000, qps.b_key + 0x100}});
  qps.a.post_send({.sges = {qps.a_sge(0, 8)}});
  EXPECT_EQ(wait(qps.b_cq).syndrome, CqeSyndrome::local_protection);
  EXPECT_EQ(wait(qps.a_cq).syndrome, CqeSyndrome::remote_operation);
}

TEST_F(RcErrors, AReceiveBufferThatIsReadOnlyIsALocalProtectionError) {
  const auto key = pair.b.register_memory(qps.b_buffer, 4096, MemoryAccess::local_read);
  qps.b.post_recv({Sge{qps.b_buffer, 1000, key}});
  qps.a.post_send({.sges = {qps.a_sge(0, 8)}});
  EXPECT_EQ(wait(qps.b_cq).syndrome, CqeSyndrome::local_protection);
}

TEST_F(RcErrors, UnmappedMemoryIsALocalProtectionError) {
  // The key is good, but the IOMMU does not know the page.
  const std::uint64_t nowhere = 0x9000'0000;
  const auto key = pair.a.register_memory(nowhere, 4096, kAllAccess);
  qps.a.post_send({.sges = {{nowhere, 8, key}}});
  EXPECT_EQ(wait(qps.a_cq).syndrome, CqeSyndrome::local_protection);
}

TEST_F(RcErrors, MemoryThatGoesAwayDuringAReadIsARemoteAccessError) {
  unsigned responses = 0;
  pair.fate = [&](ib::Packet& p) {
    const bool counts = ib::is_rdma_read_response(p.bth.opcode) && responses < 10;
    if (counts && (responses += p.count) >= 10) pair.b.mkeys.destroy(qps.b_key >> 8);
    return PacketFate{};
  };
  qps.a.post_send(read_request(200'000));
  EXPECT_EQ(wait(qps.a_cq).syndrome, CqeSyndrome::remote_access);
  EXPECT_GE(responses, 10U);
}

TEST_F(RcErrors, AnUnknownOpcodeIsALocalQpOperationError) {
  qps.a.post_send({.opcode = static_cast<WqeOpcode>(0x3f)});
  EXPECT_EQ(wait(qps.a_cq).syndrome, CqeSyndrome::local_qp_operation);
}

TEST_F(RcErrors, RequestsBeforeTheFailedOneStillComplete) {
  qps.b.post_recv({qps.b_sge(0, 64)});
  const auto first = qps.a.write_send({.sges = {qps.a_sge(0, 8)}});
  const auto second = qps.a.write_send({.sges = {{qps.a_buffer, 8, 0x12345}}});
  const auto third = qps.a.write_send(write_request(8));
  qps.a.ring();
  pair.run_for(10'000'000);
  const auto completions = qps.a_cq.drain();
  ASSERT_EQ(completions.size(), 3U);
  EXPECT_TRUE(completions[0].ok());
  EXPECT_EQ(completions[0].wqe_counter, first);
  EXPECT_EQ(completions[1].syndrome, CqeSyndrome::local_protection);
  EXPECT_EQ(completions[1].wqe_counter, second);
  EXPECT_EQ(completions[2].syndrome, CqeSyndrome::flushed);
  EXPECT_EQ(completions[2].vendor, 0xf9);
  EXPECT_EQ(completions[2].wqe_counter, third);
}

TEST_F(RcErrors, EveryWorkRequestIsFlushedOnceInOrderSignalledOrNot) {
  for (int i = 0; i < 10; ++i) qps.a.post_recv({qps.a_sge(0, 64)});
  std::vector<std::uint16_t> posted;
  auto bad = write_request(8);
  bad.rkey = 0xbad00;
  posted.push_back(qps.a.write_send(bad));
  for (int i = 0; i < 30; ++i) {
    auto request = write_request(100);
    request.signalled = false;
    posted.push_back(qps.a.write_send(request));
  }
  qps.a.ring();
  pair.run_for(10'000'000);
  posted.push_back(qps.a.post_send(write_request(8)));  // After the error.
  qps.a.post_recv({qps.a_sge(0, 64)});
  pair.run_for(100'000'000);
  std::vector<std::uint16_t> sends;
  unsigned receives = 0;
  for (const Completion& c : qps.a_cq.drain()) {
    EXPECT_FALSE(c.ok());
    if (c.opcode == CqeOpcode::requester_error) {
      EXPECT_EQ(c.syndrome, sends.empty() ? CqeSyndrome::remote_access : CqeSyndrome::flushed);
      sends.push_back(c.wqe_counter);
    } else {
      EXPECT_EQ(c.syndrome, CqeSyndrome::flushed);
      EXPECT_EQ(c.wqe_counter, receives++);
    }
  }
  EXPECT_EQ(sends, posted);
  EXPECT_EQ(receives, 11U) << "a receive posted after the error is flushed too";
}

TEST_F(RcErrors, ModifyToErrorFlushesAndResetForgets) {
  qps.a.post_recv({qps.a_sge(0, 64)});
  pair.fate = [](ib::Packet&) {
    PacketFate what;
    what.drop = true;
    return what;
  };
  qps.a.post_send(write_request(8));
  pair.run_for(1'000);
  EXPECT_EQ(qps.a.modify(QpTransition::to_error), ModifyResult::ok);
  pair.run_for(1'000'000);
  EXPECT_EQ(qps.a_cq.drain().size(), 2U);
  EXPECT_EQ(qps.a.modify(QpTransition::to_reset), ModifyResult::ok);
  const auto shot = qps.a.query();
  EXPECT_EQ(shot.state, prm::QpState::reset);
  EXPECT_EQ(shot.sq_posted, 0U);
  EXPECT_EQ(shot.rq_consumed, 0U);
  EXPECT_EQ(pair.a.transport.next_deadline(), kNever);
}

TEST_F(RcErrors, AProducerCounterBeyondTheRingIsACatastrophicError) {
  qps.a.set_send_counter(1000);  // The ring has 128 blocks.
  qps.a.ring();
  EXPECT_EQ(pair.a.events.count(EventType::wq_catastrophic), 1U);
  EXPECT_EQ(qps.a.query().state, prm::QpState::error);
  pair.run_for(10'000'000);
  EXPECT_TRUE(qps.a_cq.drain().empty()) << "nothing in the ring can be trusted";
}

TEST_F(RcErrors, AReceiveCounterBeyondTheRingFailsTheResponder) {
  pair.b.store_be32(0x1000'0000, 0);
  for (int i = 0; i < 65; ++i) qps.b.post_recv({qps.b_sge(0, 64)});
  qps.a.post_send({.sges = {qps.a_sge(0, 8)}});
  EXPECT_EQ(wait(qps.a_cq).syndrome, CqeSyndrome::remote_operation);
  EXPECT_EQ(pair.b.events.count(EventType::wq_catastrophic), 1U);
}

TEST_F(RcErrors, PacketsWithAWrongPkeyAreDroppedAndCounted) {
  qps.b.attributes.pkey_index = 2;
  EXPECT_EQ(qps.b.modify(QpTransition::to_reset), ModifyResult::ok);
  qps.b.connect(qps.a);
  qps.a.post_send(write_request(8));
  EXPECT_EQ(wait(qps.a_cq).syndrome, CqeSyndrome::transport_retry_exceeded);
  EXPECT_EQ(pair.b.transport.pkey_violations(), 8U);
}

TEST_F(RcErrors, APeerThatIsGoneMeansRetryExceeded) {
  EXPECT_EQ(pair.b.transport.destroy_qp(qps.b.number()), DestroyResult::ok);
  qps.a.post_send(write_request(8));
  EXPECT_EQ(wait(qps.a_cq).syndrome, CqeSyndrome::transport_retry_exceeded);
  EXPECT_EQ(pair.b.transport.unknown_qp_drops(), 8U);
}

TEST_F(RcErrors, TheFirstPacketInRtrReportsCommunicationEstablished) {
  TestCq a_cq(pair.a);
  TestCq b_cq(pair.b);
  TestQp a(pair.a, a_cq, a_cq);
  TestQp b(pair.b, b_cq, b_cq);
  a.connect(b);
  b.to_init();
  b.to_rtr(&a);
  a.post_send({.opcode = WqeOpcode::rdma_write,
               .sges = {qps.a_sge(0, 8)},
               .remote_address = qps.b_buffer,
               .rkey = qps.b_key});
  EXPECT_TRUE(wait(a_cq).ok());
  ASSERT_EQ(pair.b.events.events.size(), 1U);
  EXPECT_EQ(pair.b.events.events[0],
            (RecordedEvent{EventType::communication_established, b.number()}));
}

TEST_F(RcErrors, TransitionsFromAWrongStateAreRefused) {
  TestCq cq(pair.a);
  TestQp qp(pair.a, cq, cq);
  EXPECT_EQ(qp.modify(QpTransition::init_to_rtr), ModifyResult::bad_state);
  EXPECT_EQ(qp.modify(QpTransition::rtr_to_rts), ModifyResult::bad_state);
  qp.attributes.pkey_index = 9;
  EXPECT_EQ(qp.modify(QpTransition::reset_to_init), ModifyResult::bad_parameter);
  qp.attributes.pkey_index = 0;
  EXPECT_EQ(qp.modify(QpTransition::reset_to_init), ModifyResult::ok);
  EXPECT_EQ(qp.modify(QpTransition::reset_to_init), ModifyResult::bad_state);
  qp.attributes.mtu = 0;
  EXPECT_EQ(qp.modify(QpTransition::init_to_rtr), ModifyResult::bad_parameter);
}

TEST_F(RcErrors, AQpInErrorDropsRequestsSilently) {
  EXPECT_EQ(qps.b.modify(QpTransition::to_error), ModifyResult::ok);
  qps.a.post_send(write_request(8));
  EXPECT_EQ(wait(qps.a_cq).syndrome, CqeSyndrome::transport_retry_exceeded);
}

TEST_F(RcErrors, SqDrainFinishesWhatWasBegunAndReportsIt) {
  qps.a.write_send(write_request(200'000));
  qps.a.ring();
  pair.run_for(2'000);
  EXPECT_EQ(qps.a.modify(QpTransition::rts_to_sq_drained), ModifyResult::ok);
  qps.a.post_send(write_request(8));
  pair.run_for(10'000'000);
  EXPECT_EQ(qps.a_cq.drain().size(), 1U) << "the new request waits";
  EXPECT_EQ(pair.a.events.count(EventType::sq_drained), 1U);
  EXPECT_EQ(qps.a.modify(QpTransition::sq_drained_to_rts), ModifyResult::ok);
  EXPECT_TRUE(wait(qps.a_cq).ok());
}

}  // namespace
}  // namespace softhca::transport_test
