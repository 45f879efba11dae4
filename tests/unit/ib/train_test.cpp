// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/ib/train.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "hw-model/ib/codec.h"
#include "hw-model/ib/opcodes.h"

namespace softhca::ib {
namespace {

constexpr std::uint16_t kMtu = 256;
constexpr std::uint32_t kFirstPsn = 0xfffffe;  // Wraps.

std::vector<std::byte> pattern(std::size_t size) {
  std::vector<std::byte> bytes(size);
  unsigned value = 0;
  std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<std::byte>(value++ * 7); });
  return bytes;
}

/// Four packets of a SEND with immediate, the last one not full.
Packet send_train(std::size_t payload = 3 * kMtu + 10) {
  Packet train;
  train.bth.opcode = make_opcode(Service::rc, Operation::send_first);
  train.bth.psn = kFirstPsn;
  train.bth.ack_req = true;
  train.bth.solicited = true;
  train.immediate = 77;
  train.count = 4;
  train.segment = kMtu;
  train.last_opcode = make_opcode(Service::rc, Operation::send_last_immediate);
  const auto bytes = pattern(payload);
  train.payload.assign(bytes.data(), bytes.size());
  return train;
}

TEST(Train, TakenApartIsTheSequenceOfItsPackets) {
  PacketPool pool;
  Packet train = send_train();
  const auto bytes = pattern(train.payload.size());
  const Operation expected[] = {Operation::send_first, Operation::send_middle,
                                Operation::send_middle};
  for (std::uint32_t i = 0; i < 3; ++i) {
    const PacketPtr packet = take_first(train, pool);
    EXPECT_EQ(packet->count, 1);
    EXPECT_EQ(packet->bth.opcode, make_opcode(Service::rc, expected[i]));
    EXPECT_EQ(packet->bth.psn, (kFirstPsn + i) & 0xffffff);
    EXPECT_FALSE(packet->bth.ack_req);
    EXPECT_FALSE(packet->bth.solicited);
    ASSERT_EQ(packet->payload.size(), kMtu);
    EXPECT_TRUE(
        std::equal(packet->payload.begin(), packet->payload.end(), bytes.begin() + i * kMtu));
  }
  EXPECT_EQ(train.count, 1);
  EXPECT_EQ(train.bth.opcode, make_opcode(Service::rc, Operation::send_last_immediate));
  EXPECT_EQ(train.bth.psn, 1U);
  EXPECT_TRUE(train.bth.ack_req);
  EXPECT_TRUE(train.bth.solicited);
  EXPECT_EQ(train.immediate, 77U);
  ASSERT_EQ(train.payload.size(), 10U);
  EXPECT_TRUE(std::equal(train.payload.begin(), train.payload.end(), bytes.begin() + 3 * kMtu));
}

TEST(Train, TakesAsManyBytesOfTheLinkAsItsPackets) {
  struct Kind {
    Operation first;
    Operation last;
  };
  // Only the first packet of a WRITE has a RETH; the middle of a READ response has no AETH.
  for (const Kind kind :
       {Kind{Operation::send_first, Operation::send_last},
        Kind{Operation::send_middle, Operation::send_last_immediate},
        Kind{Operation::rdma_write_first, Operation::rdma_write_last_immediate},
        Kind{Operation::rdma_write_first, Operation::rdma_write_middle},
        Kind{Operation::rdma_read_response_first, Operation::rdma_read_response_last}}) {
    for (const bool grh : {false, true}) {
      PacketPool pool;
      Packet train =
          send_train(kind.last == Operation::rdma_write_middle ? 4 * kMtu : 3 * kMtu + 10);
      train.bth.opcode = make_opcode(Service::rc, kind.first);
      train.last_opcode = make_opcode(Service::rc, kind.last);
      train.path.has_grh = grh;
      const std::size_t whole = wire_size(train);
      std::size_t sum = 0;
      while (train.count > 1) sum += encoded_size(*take_first(train, pool));
      EXPECT_EQ(whole, sum + encoded_size(train));
    }
  }
}

TEST(Payload, LentBytesAreNotCopiedUntilTheyAreRecalled) {
  auto memory = pattern(100);
  PayloadLender lender;
  Payload lent;
  lent.refer(lender, memory.data(), memory.size());
  EXPECT_TRUE(lent.is_lent());
  EXPECT_EQ(lent.data(), memory.data());
  lender.recall();
  EXPECT_FALSE(lender.lends());
  memory.assign(memory.size(), std::byte{0});
  const auto before = pattern(100);
  EXPECT_TRUE(std::equal(lent.begin(), lent.end(), before.begin(), before.end()));
}

TEST(Payload, EveryHolderIsRecalledAndNoneThatHasGone) {
  auto memory = pattern(64);
  PayloadLender lender;
  Payload first;
  Payload second;
  Payload moved;
  {
    Payload gone;
    first.refer(lender, memory.data(), 64);
    gone.refer(lender, memory.data(), 64);
    second.refer(lender, memory.data() + 8, 8);
  }
  moved = std::move(first);
  const Payload copy = moved;
  EXPECT_FALSE(copy.is_lent());
  EXPECT_TRUE(moved.is_lent());
  second.clear();
  lender.recall();
  EXPECT_FALSE(moved.is_lent());
  EXPECT_EQ(moved, copy);
  EXPECT_TRUE(second.empty());
}

TEST(Payload, WritingToLentBytesLeavesTheMemoryAlone) {
  auto memory = pattern(16);
  PayloadLender lender;
  Payload lent;
  lent.refer(lender, memory.data(), memory.size());
  lent.bytes()[0] = std::byte{0xee};
  EXPECT_EQ(memory, pattern(16));
  EXPECT_EQ(lent[0], std::byte{0xee});
  EXPECT_EQ(lent[1], memory[1]);
}

TEST(Payload, APartTakenFromTheFrontIsLentToo) {
  auto memory = pattern(100);
  PayloadLender lender;
  Payload whole;
  whole.refer(lender, memory.data(), 100);
  Payload front;
  whole.move_front(60, front);
  EXPECT_EQ(front.data(), memory.data());
  EXPECT_EQ(front.size(), 60U);
  EXPECT_EQ(whole.data(), memory.data() + 60);
  EXPECT_EQ(whole.size(), 40U);
  lender.recall();
  EXPECT_FALSE(front.is_lent());
  EXPECT_FALSE(whole.is_lent());
}

}  // namespace
}  // namespace softhca::ib
