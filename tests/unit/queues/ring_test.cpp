// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

#include "hw-model/prm/wqe.h"
#include "hw-model/queues/queue_buffer.h"
#include "hw-model/queues/receive_queue.h"
#include "hw-model/queues/send_queue.h"
#include "hw-model/transport/send_wqe.h"
#include "tests/support/transport_pair.h"

// Rings in driver memory, and what is refused of them.
namespace softhca::transport_test {
namespace {

class Rings : public ::testing::Test {
 protected:
  Rings() : host(clock, 1) {}
  std::uint8_t* bytes(std::uint64_t iova) { return reinterpret_cast<std::uint8_t*>(host.at(iova)); }
  test::VirtualClock clock;
  TestHost host;
};

TEST_F(Rings, ABufferBeginsAtItsOffsetAndFollowsItsPages) {
  const std::uint64_t first = host.allocate(4096, 4096);
  host.allocate(4096, 4096);
  const std::uint64_t second = host.allocate(4096, 4096);
  QueueBuffer buffer(host.dma, std::array{second, first}, 12, 1024);
  EXPECT_EQ(buffer.size(), 8192U - 1024);
  std::array<std::uint8_t, 4096> data;
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::uint8_t>(i * 3);
  EXPECT_EQ(buffer.write(10, data.data(), data.size()), DmaStatus::ok);
  EXPECT_EQ(std::memcmp(bytes(second) + 1034, data.data(), 3062), 0);
  EXPECT_EQ(std::memcmp(bytes(first), data.data() + 3062, 1034), 0);
  std::array<std::uint8_t, 4096> back{};
  EXPECT_EQ(buffer.read(10, back.data(), back.size()), DmaStatus::ok);
  EXPECT_EQ(back, data);
  EXPECT_EQ(buffer.read(buffer.size() - 1, back.data(), 2), DmaStatus::fault);
  EXPECT_EQ(buffer.read(~0ULL, back.data(), 2), DmaStatus::fault);
  EXPECT_EQ(buffer.store_release(buffer.size(), 1), DmaStatus::fault);
}

TEST_F(Rings, ARangeWithinOnePageIsReachedDirectlyWhereverThePagesAre) {
  const std::uint64_t first = host.allocate(4096, 4096);
  host.allocate(4096, 4096);
  const std::uint64_t second = host.allocate(4096, 4096);
  auto backing = std::make_shared<CallMemory>(4096);
  host.dma.map({.iova = 0x6000'0000, .size = 4096, .base = nullptr, .backing = backing});
  QueueBuffer buffer(host.dma, std::array<std::uint64_t, 3>{second, first, 0x6000'0000}, 12, 1024);
  EXPECT_EQ(buffer.direct(0, 64), host.at(second) + 1024);
  EXPECT_EQ(buffer.direct(3072, 4096), host.at(first));
  EXPECT_EQ(buffer.direct(3071, 2), nullptr) << "in two pages";
  EXPECT_EQ(buffer.direct(7168, 64), nullptr) << "reached by calls alone";
  EXPECT_EQ(buffer.direct(7168 + 4096, 1), nullptr);
  host.dma.unmap(0x6000'0000, 4096);
  std::array<std::byte, 4096> memory{};
  host.dma.map({.iova = 0x6000'0000, .size = 4096, .base = memory.data(), .backing = nullptr});
  EXPECT_EQ(buffer.direct(7168, 64), memory.data());
  host.dma.unmap(0x6000'0000, 4096);
  host.dma.map({.iova = 0x6000'0000,
                .size = 4096,
                .base = memory.data(),
                .backing = nullptr,
                .writable = false});
  EXPECT_EQ(buffer.direct(7168, 64), nullptr) << "the device may not write there";
}

TEST_F(Rings, OfAHugeScatteredQueueNoPagesAreRemembered) {
  const std::uint64_t first = host.allocate(4096, 4096);
  host.allocate(4096, 4096);
  const std::uint64_t second = host.allocate(4096, 4096);
  std::vector<std::uint64_t> pages(1025, first);
  pages[0] = second;
  QueueBuffer buffer(host.dma, pages, 12, 0);
  EXPECT_EQ(buffer.direct(0, 64), nullptr);
  std::uint32_t word = 5;
  EXPECT_EQ(buffer.write(8, &word, 4), DmaStatus::ok);
  EXPECT_EQ(bytes(second)[8], 5);
  pages.pop_back();
  EXPECT_EQ(QueueBuffer(host.dma, pages, 12, 0).direct(0, 64), host.at(second));
}

TEST_F(Rings, ABufferWithoutPagesHasNoRoom) {
  QueueBuffer buffer(host.dma, {}, 12, 0);
  std::uint8_t byte = 0;
  EXPECT_EQ(buffer.size(), 0U);
  EXPECT_EQ(buffer.read(0, &byte, 1), DmaStatus::fault);
  EXPECT_EQ(QueueBuffer().size(), 0U);
}

TEST_F(Rings, ABufferIsNotUsedAfterItsMemoryWasUnmapped) {
  auto backing = std::make_shared<CallMemory>(0);
  std::array<std::byte, 4096> memory{};
  host.dma.map({.iova = 0x6000'0000, .size = 4096, .base = memory.data(), .backing = nullptr});
  QueueBuffer buffer = host.buffer(0x6000'0000, 4096);
  std::uint32_t word = 0;
  EXPECT_EQ(buffer.read(0, &word, 4), DmaStatus::ok);
  host.dma.unmap(0x6000'0000, 4096);
  EXPECT_EQ(buffer.read(0, &word, 4), DmaStatus::fault);
}

TEST_F(Rings, ReceiveEntriesEndAtTheInvalidLkeyAndZeroMeansTwoGigabytes) {
  std::array<std::uint8_t, 64> wqe{};
  using prm::DataSegment;
  DataSegment::byte_count::set(wqe.data(), 100);
  DataSegment::lkey::set(wqe.data(), 0x55);
  DataSegment::address::set(wqe.data(), 0x1234);
  DataSegment::lkey::set(wqe.data() + 16, 0x66);
  DataSegment::lkey::set(wqe.data() + 32, prm::kInvalidLkey);
  DataSegment::byte_count::set(wqe.data() + 48, 7);
  ReceiveWqe parsed;
  parse_scatter_list(wqe.data(), wqe.size(), parsed);
  ASSERT_EQ(parsed.entries.size(), 2U);
  EXPECT_EQ(parsed.entries[0].address, 0x1234U);
  EXPECT_EQ(parsed.entries[1].length, 1U << 31);
  EXPECT_EQ(parsed.capacity, 100U + (1U << 31));
}

TEST_F(Rings, AReceiveCounterMayWrapButNotRunAway) {
  const std::uint64_t ring = host.allocate(64 * 4, 4096);
  const std::uint64_t record = host.allocate(8);
  QueueBuffer buffer = host.buffer(ring, 64 * 4);
  ReceiveQueue rq(host.dma, {.start = 0, .log_size = 2, .stride = 64, .doorbell_record = record});
  ReceiveWqe wqe;
  for (std::uint32_t i = 0; i < 70'000; ++i) {
    ASSERT_EQ(rq.take(buffer, wqe), TakeStatus::empty);
    host.store_be32(record, (i + 1) & 0xffff);
    ASSERT_EQ(rq.take(buffer, wqe), TakeStatus::ok);
    ASSERT_EQ(wqe.index, static_cast<std::uint16_t>(i));
  }
  host.store_be32(record, (70'000 + 5) & 0xffff);
  EXPECT_EQ(rq.take(buffer, wqe), TakeStatus::error);
}

class SendRing : public Rings {
 protected:
  SendRing()
      : ring(host.allocate(64 * 4, 4096)),
        record(host.allocate(8)),
        buffer(host.buffer(ring, 64 * 4)),
        sq(host.dma, {.start = 0, .log_size = 2, .doorbell_record = record}) {}
  void post(std::uint32_t counter) { host.store_be32(record, counter & 0xffff); }
  void units(unsigned block, unsigned count) {
    prm::CtrlSegment::ds_count::set(bytes(ring + block * 64), count);
  }
  std::uint64_t ring;
  std::uint64_t record;
  QueueBuffer buffer;
  SendQueue sq;
  RawSendWqe raw;
};

TEST_F(SendRing, AWqeMayWrapAndIsReadWhole) {
  units(0, 12);
  post(3);
  EXPECT_EQ(sq.update(), TakeStatus::ok);
  ASSERT_EQ(sq.take(buffer, raw), TakeStatus::ok);
  EXPECT_EQ(raw.size, 192U);
  sq.release(sq.consumed());
  units(3, 8);
  std::memset(bytes(ring), 0xee, 64);
  post(5);
  EXPECT_EQ(sq.update(), TakeStatus::ok);
  ASSERT_EQ(sq.take(buffer, raw), TakeStatus::ok);
  EXPECT_EQ(raw.index, 3U);
  EXPECT_EQ(raw.bytes[64], 0xee) << "the second block is the first of the ring";
}

TEST_F(SendRing, MalformedLengthsAreErrors) {
  post(1);
  EXPECT_EQ(sq.update(), TakeStatus::ok);
  EXPECT_EQ(sq.take(buffer, raw), TakeStatus::error) << "no length";
  units(0, 5);
  EXPECT_EQ(sq.take(buffer, raw), TakeStatus::error) << "longer than what was posted";
  units(0, 63);
  EXPECT_EQ(sq.take(buffer, raw), TakeStatus::error) << "longer than the ring";
}

TEST_F(SendRing, AProducerBeyondTheRingIsAnError) {
  post(5);
  EXPECT_EQ(sq.update(), TakeStatus::error);
  post(4);
  EXPECT_EQ(sq.update(), TakeStatus::ok);
}

TEST_F(Rings, SegmentsBeyondTheEndOfAWqeAreMalformed) {
  RawSendWqe raw{};
  SendWqe wqe;
  raw.size = 16;
  const auto opcode = [&raw](prm::WqeOpcode value) {
    prm::CtrlSegment::opcode::set(raw.bytes.data(), static_cast<std::uint64_t>(value));
  };
  opcode(prm::WqeOpcode::send);
  EXPECT_TRUE(parse_send_wqe(raw, SendFormat::connected, wqe)) << "an empty message";
  EXPECT_FALSE(parse_send_wqe(raw, SendFormat::datagram, wqe)) << "no address vector";
  opcode(prm::WqeOpcode::rdma_write);
  EXPECT_FALSE(parse_send_wqe(raw, SendFormat::connected, wqe)) << "no remote address";
  opcode(prm::WqeOpcode::atomic_fetch_add);
  raw.size = 48;
  EXPECT_FALSE(parse_send_wqe(raw, SendFormat::connected, wqe)) << "no place for the result";
  opcode(prm::WqeOpcode::send);
  raw.size = 32;
  prm::InlineSegment::inline_data::set(raw.bytes.data() + 16, 1);
  prm::InlineSegment::byte_count::set(raw.bytes.data() + 16, 12);
  EXPECT_TRUE(parse_send_wqe(raw, SendFormat::connected, wqe));
  EXPECT_EQ(wqe.length, 12U);
  prm::InlineSegment::byte_count::set(raw.bytes.data() + 16, 13);
  EXPECT_FALSE(parse_send_wqe(raw, SendFormat::connected, wqe))
      << "inline data longer than the WQE";
}

}  // namespace
}  // namespace softhca::transport_test
