// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/queues/event_queue.h"

#include <gtest/gtest.h>

#include <array>

#include "tests/support/transport_pair.h"

namespace softhca::transport_test {
namespace {

class EventQueueTest : public ::testing::Test {
 protected:
  const std::uint8_t* entry(unsigned n) {
    return reinterpret_cast<const std::uint8_t*>(memory.data()) + n * 64;
  }
  EqParams params(bool always_armed = false) {
    dma.map({.iova = 0x1000, .size = 0x1000, .base = memory.data(), .backing = nullptr});
    EqParams p;
    p.buffer = QueueBuffer(dma, std::array<std::uint64_t, 1>{0x1000}, 12, 0);
    p.log_size = 2;
    p.vector = 5;
    p.always_armed = always_armed;
    return p;
  }
  alignas(4096) std::array<std::byte, 4096> memory{};
  DmaSpace dma;
  RecordingInterrupts interrupts;
};

TEST_F(EventQueueTest, EntriesCarryTypeDataAndTheOwnerOfTheirPass) {
  EventQueue eq(1, params(), interrupts);
  const std::array<std::uint8_t, 2> data{0xaa, 0xbb};
  for (unsigned i = 0; i < 6; ++i) {
    eq.post(EventType::port_change, 4, data);
    EXPECT_EQ(entry(i % 4)[1], 0x09);
    EXPECT_EQ(entry(i % 4)[3], 4);
    EXPECT_EQ(entry(i % 4)[0x20], 0xaa);
    EXPECT_EQ(entry(i % 4)[0x21], 0xbb);
    EXPECT_EQ(entry(i % 4)[0x3f], i / 4);
    eq.doorbell(i + 1, false);
  }
  eq.post_completion(0x123456);
  EXPECT_EQ(entry(2)[1], 0);
  EXPECT_EQ(entry(2)[0x39], 0x12);
  EXPECT_EQ(entry(2)[0x3b], 0x56);
}

TEST_F(EventQueueTest, OneInterruptPerArm) {
  EventQueue eq(1, params(), interrupts);
  eq.post_completion(1);
  EXPECT_TRUE(interrupts.vectors.empty()) << "not armed";
  eq.doorbell(0, true);
  EXPECT_EQ(interrupts.vectors, (std::vector<std::uint16_t>{5})) << "an entry was waiting";
  eq.post_completion(1);
  EXPECT_EQ(interrupts.vectors.size(), 1U);
  eq.doorbell(2, true);
  EXPECT_EQ(interrupts.vectors.size(), 1U);
  eq.post_completion(1);
  EXPECT_EQ(interrupts.vectors.size(), 2U);
}

TEST_F(EventQueueTest, AFullQueueLosesTheEventAndSaysSo) {
  EventQueue eq(1, params(), interrupts);
  for (int i = 0; i < 4; ++i) eq.post_completion(1);
  EXPECT_FALSE(eq.overrun());
  eq.post_completion(2);
  EXPECT_TRUE(eq.overrun());
  EXPECT_EQ(entry(0)[0x3b], 1) << "an entry not consumed was overwritten";
  EXPECT_EQ(eq.producer_index(), 4U);
}

TEST_F(EventQueueTest, AnAlwaysArmedQueueInterruptsForEveryEvent) {
  EventQueue eq(1, params(true), interrupts);
  for (int i = 0; i < 6; ++i) eq.post_completion(1);
  EXPECT_EQ(interrupts.vectors.size(), 6U);
}

TEST_F(EventQueueTest, EventsForPendingMemoryAreWrittenWhenItArrives) {
  auto backing = std::make_shared<CallMemory>(4096);
  backing->pending = true;
  dma.map({.iova = 0x8000, .size = 0x1000, .base = nullptr, .backing = backing});
  EqParams p;
  p.buffer = QueueBuffer(dma, std::array<std::uint64_t, 1>{0x8000}, 12, 0);
  p.log_size = 2;
  EventQueue eq(1, std::move(p), interrupts);
  eq.doorbell(0, true);
  eq.post_completion(7);
  eq.post_completion(8);
  EXPECT_TRUE(interrupts.vectors.empty());
  backing->pending = false;
  eq.memory_arrived();
  EXPECT_EQ(eq.producer_index(), 2U);
  EXPECT_EQ(backing->bytes[0x3b], std::byte{7});
  EXPECT_EQ(backing->bytes[64 + 0x3b], std::byte{8});
  EXPECT_EQ(interrupts.vectors.size(), 1U);
}

}  // namespace
}  // namespace softhca::transport_test
