// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/ib/opcodes.h"

#include <gtest/gtest.h>

namespace softhca::ib {
namespace {

constexpr std::uint8_t rc(Operation operation) {
  return make_opcode(Service::rc, operation);
}

TEST(Opcodes, ValuesAreThoseOfTable35) {
  EXPECT_EQ(rc(Operation::rdma_write_only), 0x0a);
  EXPECT_EQ(rc(Operation::acknowledge), 0x11);
  EXPECT_EQ(make_opcode(Service::uc, Operation::send_only_immediate), 0x25);
  EXPECT_EQ(make_opcode(Service::ud, Operation::send_only), 0x64);
  EXPECT_EQ(make_opcode(Service::ud, Operation::send_only_immediate), 0x65);
  EXPECT_EQ(make_opcode(Service::xrc, Operation::send_only), 0xa4);
}

TEST(Opcodes, EachServiceHasItsOperationsAndNoOthers) {
  unsigned count[8] = {};
  for (unsigned opcode = 0; opcode < 256; ++opcode) {
    if (is_known(static_cast<std::uint8_t>(opcode))) ++count[opcode >> 5];
  }
  EXPECT_EQ(count[0], 23U) << "RC: all but RESYNC";
  EXPECT_EQ(count[1], 12U) << "UC: six SENDs and six RDMA WRITEs";
  EXPECT_EQ(count[2], 22U) << "RD: all but the two with invalidate";
  EXPECT_EQ(count[3], 2U) << "UD: SEND only, with and without immediate";
  EXPECT_EQ(count[4], 0U);
  EXPECT_EQ(count[5], 23U) << "XRC: as RC";
  EXPECT_EQ(count[6] + count[7], 0U);
}

TEST(Opcodes, HeadersOfEachOperation) {
  EXPECT_TRUE(has_reth(rc(Operation::rdma_write_first)));
  EXPECT_FALSE(has_reth(rc(Operation::rdma_write_middle)));
  EXPECT_TRUE(has_reth(rc(Operation::rdma_read_request)));
  EXPECT_TRUE(has_atomic_eth(rc(Operation::compare_swap)));
  EXPECT_TRUE(has_aeth(rc(Operation::rdma_read_response_first)));
  EXPECT_FALSE(has_aeth(rc(Operation::rdma_read_response_middle)));
  EXPECT_TRUE(has_atomic_ack_eth(rc(Operation::atomic_acknowledge)));
  EXPECT_TRUE(has_ieth(rc(Operation::send_only_invalidate)));
  EXPECT_TRUE(has_deth(make_opcode(Service::ud, Operation::send_only)));
  EXPECT_TRUE(has_xrceth(make_opcode(Service::xrc, Operation::send_middle)));
  EXPECT_FALSE(has_xrceth(make_opcode(Service::xrc, Operation::acknowledge)));
}

TEST(Opcodes, HeaderSizesAddUp) {
  EXPECT_EQ(transport_header_size(rc(Operation::send_middle)), 12U);
  EXPECT_EQ(transport_header_size(rc(Operation::rdma_write_only_immediate)), 32U);
  EXPECT_EQ(transport_header_size(rc(Operation::fetch_add)), 40U);
  EXPECT_EQ(transport_header_size(rc(Operation::atomic_acknowledge)), 24U);
  EXPECT_EQ(transport_header_size(make_opcode(Service::ud, Operation::send_only_immediate)), 24U);
  EXPECT_EQ(transport_header_size(make_opcode(Service::xrc, Operation::compare_swap)), 44U);
}

TEST(Opcodes, EveryKnownOpcodeIsEitherRequestOrResponseAndHasOnePosition) {
  for (unsigned i = 0; i < 256; ++i) {
    const auto opcode = static_cast<std::uint8_t>(i);
    if (!is_known(opcode)) continue;
    EXPECT_NE(is_request(opcode), is_response(opcode)) << opcode_name(opcode);
    EXPECT_EQ(is_first(opcode) + is_middle(opcode) + is_last(opcode) + is_only(opcode), 1)
        << opcode_name(opcode);
  }
}

TEST(Opcodes, ReceiveWqeIsTakenBySendsAndWritesWithImmediate) {
  EXPECT_TRUE(consumes_receive(rc(Operation::send_first)));
  EXPECT_TRUE(consumes_receive(rc(Operation::rdma_write_last_immediate)));
  EXPECT_FALSE(consumes_receive(rc(Operation::rdma_write_last)));
  EXPECT_FALSE(consumes_receive(rc(Operation::rdma_read_request)));
}

TEST(Opcodes, NamesAreReadable) {
  EXPECT_STREQ(opcode_name(0x09), "RC RDMA_WRITE_LAST_WITH_IMMEDIATE");
  EXPECT_STREQ(opcode_name(0x64), "UD SEND_ONLY");
  EXPECT_STREQ(opcode_name(0xff), "unknown");
}

TEST(Aeth, SyndromeHoldsKindAndValue) {
  EXPECT_EQ(nak_syndrome(NakCode::psn_sequence_error), 0x60);
  EXPECT_EQ(nak_syndrome(NakCode::remote_access_error), 0x62);
  EXPECT_EQ(make_syndrome(AethKind::rnr_nak, 12), 0x2c);
  EXPECT_EQ(aeth_kind(0x2c), AethKind::rnr_nak);
  EXPECT_EQ(aeth_value(0x7f), 31);
}

TEST(Aeth, RnrTimerFollowsTable45) {
  EXPECT_EQ(rnr_timer_ns(0), 655'360'000U);
  EXPECT_EQ(rnr_timer_ns(1), 10'000U);
  EXPECT_EQ(rnr_timer_ns(12), 640'000U);
  EXPECT_EQ(rnr_timer_ns(31), 491'520'000U);
}

TEST(Mtu, CodesAreOneToFive) {
  EXPECT_EQ(mtu_bytes(1), 256U);
  EXPECT_EQ(mtu_bytes(5), 4096U);
  EXPECT_EQ(mtu_bytes(0), 0U);
  EXPECT_EQ(mtu_bytes(6), 0U);
}

}  // namespace
}  // namespace softhca::ib
