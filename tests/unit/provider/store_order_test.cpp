// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "provider/ordering.h"
#include "tests/unit/provider/queue_fixture.h"

/// The order of stores that hardware needs (ordering.h). The provider reports each watched store
/// and fence just before it takes effect; at every report the whole ring is copied, so that a WQE
/// byte that is still missing at the fence, or changes after it, shows.
namespace softhca::provider {
namespace {

struct Report {
  StoreEvent event{};
  const volatile void* address = nullptr;
  std::uint64_t value = 0;
  std::vector<std::uint8_t> memory;
};

std::vector<Report> reports;
const std::uint8_t* watched = nullptr;
std::size_t watched_size = 0;

std::vector<StoreEvent> events() {
  std::vector<StoreEvent> result;
  for (const Report& report : reports) result.push_back(report.event);
  return result;
}

class StoreOrderTest : public testing::Test {
 protected:
  StoreOrderTest() { reports.clear(); }
  ~StoreOrderTest() override { watched = nullptr; }
  static void watch(const std::uint8_t* memory, std::size_t size) {
    watched = memory;
    watched_size = size;
  }
  /// From the first report on, the watched memory is what it is at the end.
  static void expect_complete_at_first_report() {
    ASSERT_FALSE(reports.empty());
    for (const Report& report : reports) {
      EXPECT_EQ(std::memcmp(report.memory.data(), watched, watched_size), 0)
          << "a store to the ring after the fence";
    }
  }
};

using Events = std::vector<StoreEvent>;
const Events kSendOrder = {StoreEvent::fence_before_record, StoreEvent::record,
                           StoreEvent::fence_before_doorbell, StoreEvent::doorbell,
                           StoreEvent::flush_doorbell};

TEST_F(StoreOrderTest, PostSendWritesWqeThenRecordThenRegister) {
  PlainQueuePair plain(IBV_QPT_RC);
  watch(plain.ring(), plain.ring_size());
  ibv_sge sge{0x1000, 64, 1};
  ibv_send_wr second{};
  second.opcode = IBV_WR_RDMA_WRITE;
  second.sg_list = &sge;
  second.num_sge = 1;
  ibv_send_wr first = second;
  first.next = &second;
  ASSERT_EQ(plain.post(first), 0);
  EXPECT_EQ(events(), kSendOrder);
  expect_complete_at_first_report();
  EXPECT_EQ(reports[1].address, &plain.record[1]);
  EXPECT_EQ(reports[1].value, 2U);
  EXPECT_EQ(reports[3].address, plain.page() + prm::Uar::blue_flame);
}

TEST_F(StoreOrderTest, PlainRequestsKeepTheSameOrder) {
  PlainQueuePair plain(IBV_QPT_RC);
  ibv_sge sge{0x1000, 64, 1};
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  ASSERT_EQ(plain.post(wr), 0);  // The first one takes the long way.
  reports.clear();
  watch(plain.ring(), plain.ring_size());
  ASSERT_NE(plain.qp.sq.head, plain.qp.sq.plain_until);
  ASSERT_EQ(plain.post(wr), 0);
  EXPECT_EQ(events(), kSendOrder);
  expect_complete_at_first_report();
  EXPECT_EQ(reports[1].address, &plain.record[1]);
  EXPECT_EQ(reports[1].value, 2U);
}

TEST_F(StoreOrderTest, PollingAPlainCompletionFencesToo) {
  PlainQueuePair qp(IBV_QPT_RC);
  PlainCompletionQueue plain;
  const std::uint32_t index = *plain.resources.insert(&qp.qp.resource);
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  ibv_wc wc{};
  for (unsigned counter = 0; counter < 2; ++counter) {
    ASSERT_EQ(qp.post(wr), 0);
    plain.write(prm::CqeOpcode::requester, index,
                [&](std::uint8_t* cqe) { prm::Cqe::wqe_counter::set(cqe, counter); });
    reports.clear();
    ASSERT_EQ(plain.poll(wc), 1);
  }
  EXPECT_EQ(events(), (Events{StoreEvent::fence_after_owner, StoreEvent::record}));
}

TEST_F(StoreOrderTest, BuilderKeepsTheSameOrder) {
  PlainQueuePair plain(IBV_QPT_RC);
  watch(plain.ring(), plain.ring_size());
  ibv_qp_ex* qp = plain.ex();
  ibv_wr_start(qp);
  qp->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_rdma_write(qp, 1, 0x2000);
  ibv_wr_set_sge(qp, 1, 0x1000, 64);
  ibv_wr_send(qp);
  ibv_wr_set_sge(qp, 1, 0x1000, 64);
  EXPECT_TRUE(reports.empty()) << "the device is told nothing before ibv_wr_complete";
  ASSERT_EQ(ibv_wr_complete(qp), 0);
  EXPECT_EQ(events(), kSendOrder);
  expect_complete_at_first_report();
}

TEST_F(StoreOrderTest, BlueFlameCopiesAfterTheRecordAndIsFlushed) {
  PlainQueuePair plain(IBV_QPT_RC, 16, 256);
  watch(plain.ring(), plain.ring_size());
  std::string text(80, 'x');
  ibv_sge sge{reinterpret_cast<std::uintptr_t>(text.data()), 80, 0};
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_INLINE;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  ASSERT_EQ(plain.post(wr), 0);
  EXPECT_EQ(events(), (Events{StoreEvent::fence_before_record, StoreEvent::record,
                              StoreEvent::fence_before_doorbell, StoreEvent::blue_flame,
                              StoreEvent::blue_flame, StoreEvent::flush_doorbell}));
  expect_complete_at_first_report();
  EXPECT_EQ(reports[3].address, plain.page() + prm::Uar::blue_flame);
  EXPECT_EQ(reports[4].address, plain.page() + prm::Uar::blue_flame + 64);
}

TEST_F(StoreOrderTest, AFailedBatchTouchesNoDoorbell) {
  PlainQueuePair plain(IBV_QPT_RC, 4);
  ibv_qp_ex* qp = plain.ex();
  ibv_wr_start(qp);
  for (int i = 0; i < 5; ++i) ibv_wr_send(qp);
  EXPECT_NE(ibv_wr_complete(qp), 0);
  EXPECT_TRUE(reports.empty());
}

TEST_F(StoreOrderTest, PostReceiveWritesEntriesBeforeTheRecord) {
  PlainQueuePair plain(IBV_QPT_RC);
  watch(plain.receive_entry(0), 256);
  ibv_sge sge{0x1000, 64, 1};
  ibv_recv_wr wr{};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(post_recv(plain.base(), &wr, &bad), 0);
  EXPECT_EQ(events(), (Events{StoreEvent::fence_before_record, StoreEvent::record}));
  expect_complete_at_first_report();
}

TEST_F(StoreOrderTest, ArmWritesTheRecordBeforeTheRegister) {
  PlainCompletionQueue plain;
  ASSERT_EQ(req_notify_cq(&plain.cq.verbs.cq, 0), 0);
  EXPECT_EQ(events(), kSendOrder);
  EXPECT_EQ(reports[1].address, &plain.record[1]);
  EXPECT_EQ(reports[3].address, plain.page() + prm::Uar::cq_arm);
}

TEST_F(StoreOrderTest, PollingFencesBetweenOwnerByteAndContents) {
  PlainQueuePair qp(IBV_QPT_RC);
  PlainCompletionQueue plain;
  const std::uint32_t index = *plain.resources.insert(&qp.qp.resource);
  ibv_recv_wr wr{};
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(post_recv(qp.base(), &wr, &bad), 0);
  plain.write(prm::CqeOpcode::responder_send, index);
  reports.clear();
  ibv_wc wc{};
  ASSERT_EQ(plain.poll(wc), 1);
  EXPECT_EQ(events(), (Events{StoreEvent::fence_after_owner, StoreEvent::record}));
  EXPECT_EQ(reports[1].address, &plain.record[0]);
}

}  // namespace

void record_store(StoreEvent event, const volatile void* address, std::uint64_t value) {
  Report report{event, address, value, {}};
  if (watched != nullptr) report.memory.assign(watched, watched + watched_size);
  reports.push_back(std::move(report));
}

}  // namespace softhca::provider
