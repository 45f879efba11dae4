// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/queues/completion_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tests/support/transport_pair.h"

namespace softhca::transport_test {
namespace {

using prm::CqeOpcode;

class CompletionQueueTest : public ::testing::Test {
 protected:
  CompletionQueueTest() : host(clock, 1), eq(host.create_eq(3)) { eq->doorbell(0, true); }

  static prm::CqeWords words(std::uint32_t byte_count,
                             CqeOpcode opcode = CqeOpcode::responder_send) {
    prm::CqeWords cqe{};
    cqe.op_own = static_cast<std::uint8_t>(static_cast<unsigned>(opcode) << 4);
    cqe.byte_count = byte_count;
    return cqe;
  }
  std::uint32_t events() const { return eq->producer_index(); }

  test::VirtualClock clock;
  TestHost host;
  EventQueue* eq;
};

TEST_F(CompletionQueueTest, EntriesAreOwnedBySoftwareInTheirPass) {
  for (const bool cqe128 : {false, true}) {
    TestCq cq(host, 2, cqe128);
    for (std::uint32_t i = 0; i < 20; ++i) {
      EXPECT_FALSE(cq.poll().has_value());
      cq.device().post(words(i), false);
      const auto completion = cq.poll();
      ASSERT_TRUE(completion.has_value());
      EXPECT_EQ(completion->byte_count, i);
    }
  }
}

/// Writes the next entry in place, if that is possible.
bool write_in_place(CompletionQueue& cq, std::uint32_t byte_count, bool solicited = false) {
  prm::CqeWords* entry = cq.entry();
  if (entry == nullptr) return false;
  std::memset(static_cast<void*>(entry), 0, prm::Cqe::owner_offset);
  entry->byte_count = byte_count;
  cq.commit(*entry, CqeOpcode::responder_send, solicited);
  return true;
}

TEST_F(CompletionQueueTest, EntriesInPlaceAreAsPostedOnes) {
  for (const bool cqe128 : {false, true}) {
    TestCq cq(host, 2, cqe128);
    for (std::uint32_t i = 0; i < 40; ++i) {
      EXPECT_FALSE(cq.poll().has_value());
      if (i % 3 == 0) {
        cq.device().post(words(i), false);
      } else {
        EXPECT_TRUE(write_in_place(cq.device(), i));
      }
      const auto completion = cq.poll();
      ASSERT_TRUE(completion.has_value());
      EXPECT_EQ(completion->opcode, CqeOpcode::responder_send);
      EXPECT_EQ(completion->byte_count, i);
    }
  }
}

TEST_F(CompletionQueueTest, NoEntryIsWrittenInPlaceThatTheDriverHasNotRead) {
  TestCq cq(host, 2);
  for (int round = 0; round < 3; ++round) {
    for (std::uint32_t i = 0; i < 4; ++i) {
      if (i == 1) {
        cq.device().post(words(i), false);
      } else {
        EXPECT_TRUE(write_in_place(cq.device(), i));
      }
    }
    EXPECT_FALSE(write_in_place(cq.device(), 9));
    EXPECT_FALSE(cq.device().in_error()) << "to ask is no overrun";
    EXPECT_EQ(cq.drain().size(), 4U);
  }
  for (std::uint32_t i = 0; i < 4; ++i) cq.device().post(words(i), false);
  cq.device().post(words(4), false);
  EXPECT_TRUE(cq.device().in_error());
  cq.drain();
  EXPECT_FALSE(write_in_place(cq.device(), 9)) << "a queue in error takes no more";
}

TEST_F(CompletionQueueTest, AnEntryInPlaceMakesTheEventThatIsArmed) {
  TestCq cq(host, 4, false, eq);
  cq.arm(true);
  ASSERT_TRUE(write_in_place(cq.device(), 1));
  EXPECT_EQ(events(), 0U);
  ASSERT_TRUE(write_in_place(cq.device(), 2, true));
  EXPECT_EQ(events(), 1U);
  EXPECT_EQ(cq.device().last_solicited_index(), 2U);
}

TEST_F(CompletionQueueTest, EntriesInPlaceFollowTheRing) {
  TestCq cq(host, 2);
  ASSERT_TRUE(write_in_place(cq.device(), 10));
  const std::uint64_t ring = host.allocate(64 << 4, 4096);
  ASSERT_TRUE(cq.device().resize(host.buffer(ring, 64 << 4), 4, false));
  ASSERT_TRUE(write_in_place(cq.device(), 11));
  const auto* entry = reinterpret_cast<const std::uint8_t*>(host.at(ring + 2 * 64));
  EXPECT_EQ(prm::Cqe::byte_count::get(entry), 11U);
  host.dma.clear();
  EXPECT_FALSE(write_in_place(cq.device(), 12)) << "the memory is gone";
}

TEST_F(CompletionQueueTest, CollapsedQueuesHaveNoEntryInPlace) {
  CqParams params;
  params.buffer = host.buffer(host.allocate(4096, 4096), 4096);
  params.log_size = 3;
  params.collapsed = true;
  params.doorbell_record = host.allocate(8);
  CompletionQueue* cq = host.transport.create_cq(std::move(params));
  EXPECT_EQ(cq->entry(), nullptr);
  EXPECT_TRUE(cq->post(words(1), false));
}

TEST_F(CompletionQueueTest, AnOverrunPutsTheQueueInErrorAndReportsItOnce) {
  TestCq cq(host, 2);
  for (std::uint32_t i = 0; i < 7; ++i) cq.device().post(words(i), false);
  EXPECT_TRUE(cq.device().in_error());
  ASSERT_EQ(host.events.events.size(), 1U);
  EXPECT_EQ(host.events.events[0], (RecordedEvent{EventType::cq_error, cq.number(), 1}));
  EXPECT_EQ(cq.drain().size(), 4U) << "what was there stays";
}

TEST_F(CompletionQueueTest, AnArmMakesOneEvent) {
  TestCq cq(host, 4, false, eq);
  cq.device().post(words(0), false);
  EXPECT_EQ(events(), 0U) << "not armed";
  cq.drain();
  cq.arm(false);
  EXPECT_EQ(events(), 0U);
  cq.device().post(words(1), false);
  cq.device().post(words(2), false);
  EXPECT_EQ(events(), 1U);
  cq.next_arm_sequence();
  cq.arm(false);
  EXPECT_EQ(events(), 2U) << "unread entries at the time of the arm";
}

TEST_F(CompletionQueueTest, AnArmWhoseSequenceNumberWasUsedIsIgnored) {
  TestCq cq(host, 4, false, eq);
  cq.arm(false);
  cq.device().post(words(0), false);
  EXPECT_EQ(events(), 1U);
  cq.arm(false);  // The same again: the driver has not seen the event.
  cq.device().post(words(1), false);
  EXPECT_EQ(events(), 1U);
}

TEST_F(CompletionQueueTest, ASolicitedArmWaitsForASolicitedOrFailedEntry) {
  TestCq cq(host, 4, false, eq);
  cq.arm(true);
  cq.device().post(words(0), false);
  EXPECT_EQ(events(), 0U);
  cq.device().post(words(1), true);
  EXPECT_EQ(events(), 1U);
  cq.drain();
  cq.next_arm_sequence();
  cq.arm(true);
  cq.device().post(words(2, CqeOpcode::requester_error), false);
  EXPECT_EQ(events(), 2U);
}

TEST_F(CompletionQueueTest, AnArmForAnyEntryIsNotWeakenedByALaterSolicitedOne) {
  TestCq cq(host, 4, false, eq);
  cq.arm(false);
  cq.arm(true);
  cq.device().post(words(0), false);
  EXPECT_EQ(events(), 1U);
}

TEST_F(CompletionQueueTest, ArmsAreFoundInTheDoorbellRecordAlone) {
  TestCq cq(host, 4, false, eq);
  cq.device().watch_record();
  EXPECT_FALSE(host.transport.sweep_doorbells().moved);
  cq.arm(false, /*ring=*/false);  // The first arm of all is the word 0.
  EXPECT_TRUE(cq.device().arm_from_record());
  EXPECT_FALSE(cq.device().arm_from_record());
  cq.device().post(words(0), false);
  EXPECT_EQ(events(), 1U);
  cq.drain();
  cq.next_arm_sequence();
  cq.arm(false, /*ring=*/false);
  EXPECT_TRUE(host.transport.sweep_doorbells().moved);
  EXPECT_FALSE(host.transport.sweep_doorbells().moved) << "seen already";
  cq.device().post(words(1), false);
  EXPECT_EQ(events(), 2U);
  EXPECT_FALSE(host.transport.sweep_doorbells().moved);
}

TEST_F(CompletionQueueTest, ARecordThatWasNeverWrittenIsNoArm) {
  TestCq cq(host, 4, false, eq);
  cq.device().watch_record();
  EXPECT_FALSE(host.transport.sweep_doorbells().moved);
  EXPECT_FALSE(cq.device().arm_from_record()) << "a hint that is not true";
  cq.device().post(words(0), false);
  EXPECT_EQ(events(), 0U);
  cq.drain();
  cq.arm(true, /*ring=*/false);
  EXPECT_TRUE(host.transport.sweep_doorbells().moved);
  cq.device().post(words(1), false);
  EXPECT_EQ(events(), 0U) << "not solicited";
}

TEST_F(CompletionQueueTest, TheWordOfAQueueThatIsNotToBeArmedIsNoArm) {
  TestCq cq(host, 4, false, eq);
  cq.device().watch_record();
  for (int i = 0; i < 2; ++i) cq.next_arm_sequence();
  cq.arm(false, /*ring=*/false);
  EXPECT_FALSE(host.transport.sweep_doorbells().moved);
  cq.device().post(words(0), false);
  EXPECT_EQ(events(), 0U);
}

TEST_F(CompletionQueueTest, EntriesTakenSinceTheRequestMakeNoEvent) {
  TestCq cq(host, 4, false, eq);
  cq.device().post(words(0), false);
  cq.arm(false, /*ring=*/false);
  cq.drain();
  EXPECT_TRUE(cq.device().arm_from_record());
  EXPECT_EQ(events(), 0U);
  cq.device().post(words(1), false);
  EXPECT_EQ(events(), 1U);
}

TEST_F(CompletionQueueTest, ModerationGathersEntriesByCountOrTime) {
  TestCq cq(host, 6, false, eq);
  cq.device().set_moderation(/*period_us=*/50, /*max_count=*/4);
  cq.arm(false);
  for (std::uint32_t i = 0; i < 3; ++i) cq.device().post(words(i), false);
  EXPECT_EQ(events(), 0U);
  cq.device().post(words(3), false);
  EXPECT_EQ(events(), 1U) << "by count";
  cq.drain();
  cq.next_arm_sequence();
  cq.arm(false);
  cq.device().post(words(4), false);
  EXPECT_EQ(events(), 1U);
  const Nanoseconds deadline = host.transport.next_deadline();
  EXPECT_LE(deadline, clock.now() + 50'000);
  clock.advance_to(clock.now() + 50'000);
  host.transport.step({});
  EXPECT_EQ(events(), 2U) << "by time";
}

TEST_F(CompletionQueueTest, AResizeEntryIsTheLastInTheOldBuffer) {
  TestCq cq(host, 2);
  cq.device().post(words(10), false);
  const std::uint64_t ring = host.allocate(64 << 4, 4096);
  EXPECT_FALSE(cq.device().resize(host.buffer(ring, 4096), 7, false)) << "buffer too small";
  ASSERT_TRUE(cq.device().resize(host.buffer(ring, 64 << 4), 4, false));
  EXPECT_EQ(cq.poll()->byte_count, 10U);
  EXPECT_EQ(cq.poll()->opcode, CqeOpcode::resize_cq);
  cq.device().post(words(11), false);
  EXPECT_FALSE(cq.poll().has_value()) << "nothing more comes to the old buffer";
  const auto* entry = reinterpret_cast<const std::uint8_t*>(host.at(ring + 2 * 64));
  EXPECT_EQ(prm::Cqe::byte_count::get(entry), 11U) << "the index goes on";
}

TEST_F(CompletionQueueTest, AResizeThatWouldLoseEntriesIsRefused) {
  TestCq cq(host, 3);
  for (std::uint32_t i = 0; i < 4; ++i) cq.device().post(words(i), false);
  const std::uint64_t ring = host.allocate(64 << 2, 4096);
  EXPECT_FALSE(cq.device().resize(host.buffer(ring, 64 << 2), 2, false));
  EXPECT_EQ(cq.drain().size(), 4U);
}

TEST_F(CompletionQueueTest, ScatterDataGoesWhereTheFormatSays) {
  TestCq cq(host, 2, /*cqe128=*/true);
  const auto data = TestHost::pattern(60, 1);
  cq.device().post(words(60), false, data);
  auto completion = cq.poll();
  EXPECT_EQ(completion->format, prm::CqeFormat::inline_64);
  EXPECT_EQ(std::memcmp(completion->inline_data.data(), data.data(), 60), 0);
  cq.device().post(words(20), false, std::span(data).first(20));
  completion = cq.poll();
  EXPECT_EQ(completion->format, prm::CqeFormat::inline_32);
  EXPECT_EQ(std::memcmp(completion->inline_data.data(), data.data(), 20), 0);
}

TEST_F(CompletionQueueTest, EntriesForPendingMemoryKeepTheirOrder) {
  auto backing = std::make_shared<CallMemory>(4096);
  constexpr std::uint64_t kIova = 0x6000'0000;
  host.dma.map({.iova = kIova, .size = 4096, .base = nullptr, .backing = backing});
  CqParams params;
  params.buffer = host.buffer(kIova, 4096);
  params.log_size = 3;
  params.doorbell_record = host.allocate(8);
  CompletionQueue* cq = host.transport.create_cq(std::move(params));
  backing->pending = true;
  for (std::uint32_t i = 1; i <= 8; ++i) {
    EXPECT_EQ(cq->entry(), nullptr);
    cq->post(words(i), false);
  }
  EXPECT_EQ(cq->producer_index(), 0U);
  EXPECT_FALSE(cq->in_error());
  backing->pending = false;
  host.transport.memory_arrived();
  EXPECT_EQ(cq->producer_index(), 8U);
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(backing->bytes[i * 64 + 0x2f], static_cast<std::byte>(i + 1));
  }
}

TEST_F(CompletionQueueTest, AnArmInPendingMemoryIsTakenWhenThatArrives) {
  for (const bool watched : {true, false}) {
    auto backing = std::make_shared<CallMemory>(4096);
    const std::uint64_t iova = watched ? 0x6000'0000 : 0x6001'0000;
    host.dma.map({.iova = iova, .size = 4096, .base = nullptr, .backing = backing});
    CqParams params;
    params.buffer = host.buffer(host.allocate(4096, 4096), 4096);
    params.log_size = 3;
    params.doorbell_record = iova;
    CompletionQueue* cq = host.transport.create_cq(std::move(params));
    backing->pending = true;
    if (watched) {
      cq->watch_record();  // Cannot be marked: whether it was armed meanwhile does not show.
    } else {
      cq->arm_from_record();
    }
    EXPECT_EQ(cq->arm_state(), CompletionQueue::ArmState::fired);
    backing->pending = false;
    host.transport.memory_arrived();
    EXPECT_EQ(cq->arm_state(), CompletionQueue::ArmState::armed) << watched;
  }
}

TEST_F(CompletionQueueTest, UnreachableMemoryPutsTheQueueInError) {
  CqParams params;
  params.buffer = host.buffer(0x5000'0000, 4096);
  params.log_size = 3;
  params.doorbell_record = host.allocate(8);
  CompletionQueue* cq = host.transport.create_cq(std::move(params));
  cq->post(words(1), false);
  EXPECT_TRUE(cq->in_error());
  EXPECT_EQ(host.events.events.back().syndrome, 2);
}

}  // namespace
}  // namespace softhca::transport_test
