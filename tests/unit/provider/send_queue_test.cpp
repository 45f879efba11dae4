// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "tests/unit/provider/queue_fixture.h"

namespace softhca::provider {
namespace {

using prm::CtrlSegment;
using prm::DataSegment;
using prm::RemoteAddressSegment;

ibv_sge sge_of(std::uint64_t address, std::uint32_t length, std::uint32_t lkey) {
  ibv_sge sge{};
  sge.addr = address;
  sge.length = length;
  sge.lkey = lkey;
  return sge;
}

ibv_send_wr request(ibv_wr_opcode opcode, ibv_sge* list, int count) {
  ibv_send_wr wr{};
  wr.wr_id = 0xabcdef;
  wr.opcode = opcode;
  wr.sg_list = list;
  wr.num_sge = count;
  wr.send_flags = IBV_SEND_SIGNALED;
  return wr;
}

TEST(SendQueue, ControlSegmentNamesQueueIndexOpcodeAndLength) {
  PlainQueuePair plain(IBV_QPT_RC);
  plain.qp.sq.producer = 0x10003;
  ibv_sge sge = sge_of(0x7000, 64, 0x500);
  ibv_send_wr wr = request(IBV_WR_SEND, &sge, 1);
  wr.send_flags |= IBV_SEND_SOLICITED | IBV_SEND_FENCE;
  ASSERT_EQ(plain.post(wr), 0);

  const std::uint8_t* wqe = plain.block(3);
  EXPECT_EQ(CtrlSegment::opcode::get(wqe), static_cast<unsigned>(prm::WqeOpcode::send));
  EXPECT_EQ(CtrlSegment::opmod::get(wqe), 0U);
  EXPECT_EQ(CtrlSegment::wqe_index::get(wqe), 3U);
  EXPECT_EQ(CtrlSegment::qpn::get(wqe), PlainQueuePair::kQpn);
  EXPECT_EQ(CtrlSegment::ds_count::get(wqe), 2U);
  EXPECT_EQ(CtrlSegment::completion::get(wqe), static_cast<unsigned>(prm::CompletionMode::always));
  EXPECT_EQ(CtrlSegment::solicited::get(wqe), 1U);
  EXPECT_EQ(CtrlSegment::fence_mode::get(wqe),
            static_cast<unsigned>(prm::FenceMode::small_and_fence));
  const std::uint8_t* data = wqe + 16;
  EXPECT_EQ(DataSegment::inline_data::get(data), 0U);
  EXPECT_EQ(DataSegment::byte_count::get(data), 64U);
  EXPECT_EQ(DataSegment::lkey::get(data), 0x500U);
  EXPECT_EQ(DataSegment::address::get(data), 0x7000U);
}

TEST(SendQueue, RdmaCarriesRemoteAddressBeforeData) {
  for (const auto& [verb, opcode] :
       {std::pair{IBV_WR_RDMA_WRITE, prm::WqeOpcode::rdma_write},
        std::pair{IBV_WR_RDMA_WRITE_WITH_IMM, prm::WqeOpcode::rdma_write_imm},
        std::pair{IBV_WR_RDMA_READ, prm::WqeOpcode::rdma_read}}) {
    PlainQueuePair plain(IBV_QPT_RC);
    ibv_sge sge = sge_of(0x1111, 5, 7);
    ibv_send_wr wr = request(verb, &sge, 1);
    wr.imm_data = htobe32(0x01020304);
    wr.wr.rdma.remote_addr = 0x123456789abcdef0;
    wr.wr.rdma.rkey = 0xcafe;
    ASSERT_EQ(plain.post(wr), 0);
    const std::uint8_t* wqe = plain.block(0);
    EXPECT_EQ(CtrlSegment::opcode::get(wqe), static_cast<unsigned>(opcode));
    EXPECT_EQ(CtrlSegment::ds_count::get(wqe), 3U);
    EXPECT_EQ(CtrlSegment::immediate::get(wqe),
              verb == IBV_WR_RDMA_WRITE_WITH_IMM ? 0x01020304U : 0U);
    EXPECT_EQ(RemoteAddressSegment::virtual_address::get(wqe + 16), 0x123456789abcdef0U);
    EXPECT_EQ(RemoteAddressSegment::rkey::get(wqe + 16), 0xcafeU);
    EXPECT_EQ(DataSegment::byte_count::get(wqe + 32), 5U);
  }
}

TEST(SendQueue, AtomicsCarryOperandsAndOneEightByteEntry) {
  PlainQueuePair plain(IBV_QPT_RC);
  ibv_sge sge = sge_of(0x2000, 8, 9);
  ibv_send_wr wr = request(IBV_WR_ATOMIC_CMP_AND_SWP, &sge, 1);
  wr.wr.atomic.remote_addr = 0x3000;
  wr.wr.atomic.rkey = 4;
  wr.wr.atomic.compare_add = 0x1111222233334444;
  wr.wr.atomic.swap = 0x5555666677778888;
  ASSERT_EQ(plain.post(wr), 0);
  const std::uint8_t* wqe = plain.block(0);
  EXPECT_EQ(CtrlSegment::ds_count::get(wqe), 4U);
  EXPECT_EQ(prm::AtomicSegment::compare::get(wqe + 32), 0x1111222233334444U);
  EXPECT_EQ(prm::AtomicSegment::swap_add::get(wqe + 32), 0x5555666677778888U);
  EXPECT_EQ(DataSegment::byte_count::get(wqe + 48), 8U);

  wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  ASSERT_EQ(plain.post(wr), 0);
  EXPECT_EQ(prm::AtomicSegment::swap_add::get(plain.block(1) + 32), 0x1111222233334444U);
}

TEST(SendQueue, DatagramCarriesAnExtendedAddressVector) {
  PlainQueuePair plain(IBV_QPT_UD);
  ibv_ah_attr attr{};
  attr.dlid = 0x42;
  attr.sl = 3;
  attr.src_path_bits = 1;
  attr.is_global = 1;
  attr.grh.sgid_index = 2;
  attr.grh.flow_label = 0x12345;
  attr.grh.hop_limit = 64;
  attr.grh.traffic_class = 9;
  attr.grh.dgid.raw[15] = 0x77;
  AddressHandle ah;
  fill_vector(ah.vector, attr);
  ibv_sge sge = sge_of(0x1000, 32, 1);
  ibv_send_wr wr = request(IBV_WR_SEND, &sge, 1);
  wr.wr.ud.ah = &ah.ah;
  wr.wr.ud.remote_qpn = 0xabc;
  wr.wr.ud.remote_qkey = 0x11111111;
  ASSERT_EQ(plain.post(wr), 0);

  using Av = prm::AddressVector;
  const std::uint8_t* av = plain.block(0) + 16;
  EXPECT_EQ(CtrlSegment::ds_count::get(plain.block(0)), 5U);
  EXPECT_EQ(Av::qkey::get(av), 0x11111111U);
  EXPECT_EQ(Av::extended::get(av), 1U);
  EXPECT_EQ(Av::destination_qpn::get(av), 0xabcU);
  EXPECT_EQ(Av::service_level::get(av), 3U);
  EXPECT_EQ(Av::path_bits::get(av), 1U);
  EXPECT_EQ(Av::destination_lid::get(av), 0x42U);
  EXPECT_EQ(Av::grh_present::get(av), 1U);
  EXPECT_EQ(Av::source_gid_index::get(av), 2U);
  EXPECT_EQ(Av::flow_label::get(av), 0x12345U);
  EXPECT_EQ(Av::hop_limit::get(av), 64U);
  EXPECT_EQ(Av::traffic_class::get(av), 9U);
  EXPECT_EQ(Av::destination_gid::at(av)[15], 0x77);
  EXPECT_EQ(DataSegment::address::get(plain.block(1)), 0x1000U);
}

TEST(SendQueue, EmptyGatherEntriesAreLeftOut) {
  PlainQueuePair plain(IBV_QPT_RC);
  ibv_sge list[] = {sge_of(1, 0, 1), sge_of(2, 7, 2), sge_of(3, 0, 3)};
  ibv_send_wr wr = request(IBV_WR_SEND, list, 3);
  ASSERT_EQ(plain.post(wr), 0);
  EXPECT_EQ(CtrlSegment::ds_count::get(plain.block(0)), 2U);
  EXPECT_EQ(DataSegment::address::get(plain.block(0) + 16), 2U);
}

TEST(SendQueue, InlineDataIsCopiedAndPaddedToUnits) {
  PlainQueuePair plain(IBV_QPT_RC);
  std::string first = "hello ";
  std::string second = "inline world";
  ibv_sge list[] = {sge_of(reinterpret_cast<std::uintptr_t>(first.data()), 6, 0),
                    sge_of(reinterpret_cast<std::uintptr_t>(second.data()), 12, 0)};
  ibv_send_wr wr = request(IBV_WR_SEND, list, 2);
  wr.send_flags |= IBV_SEND_INLINE;
  ASSERT_EQ(plain.post(wr), 0);
  const std::uint8_t* segment = plain.block(0) + 16;
  EXPECT_EQ(prm::InlineSegment::inline_data::get(segment), 1U);
  EXPECT_EQ(prm::InlineSegment::byte_count::get(segment), 18U);
  EXPECT_EQ(std::memcmp(segment + 4, "hello inline world", 18), 0);
  EXPECT_EQ(CtrlSegment::ds_count::get(plain.block(0)), 1U + 2U);
}

TEST(SendQueue, InlineBeyondTheLimitIsRefusedAndTakesNothing) {
  PlainQueuePair plain(IBV_QPT_RC);
  std::vector<char> bytes(plain.qp.sq.max_inline + 1);
  ibv_sge sge = sge_of(reinterpret_cast<std::uintptr_t>(bytes.data()),
                       static_cast<std::uint32_t>(bytes.size()), 0);
  ibv_send_wr wr = request(IBV_WR_SEND, &sge, 1);
  wr.send_flags |= IBV_SEND_INLINE;
  EXPECT_EQ(plain.post(wr), ENOMEM);
  EXPECT_EQ(plain.qp.sq.producer, 0U);
  EXPECT_EQ(plain.record[1].get(), 0U);
}

TEST(SendQueue, GatherListWrapsAtTheEndOfTheRing) {
  PlainQueuePair plain(IBV_QPT_RC, 4);
  plain.qp.sq.producer = 3;
  ibv_sge list[] = {sge_of(1, 11, 1), sge_of(2, 12, 2), sge_of(3, 13, 3), sge_of(4, 14, 4)};
  ibv_send_wr wr = request(IBV_WR_SEND, list, 4);
  ASSERT_EQ(plain.post(wr), 0);
  EXPECT_EQ(DataSegment::byte_count::get(plain.block(3) + 48), 13U);
  EXPECT_EQ(DataSegment::byte_count::get(plain.block(0)), 14U);
  EXPECT_EQ(plain.qp.sq.producer, 5U);
  EXPECT_EQ(plain.record[1].get(), 5U);
}

TEST(SendQueue, InlineDataWrapsAtTheEndOfTheRing) {
  PlainQueuePair plain(IBV_QPT_RC, 4);
  plain.qp.sq.producer = 3;
  std::vector<std::uint8_t> bytes(100);
  std::iota(bytes.begin(), bytes.end(), std::uint8_t{1});
  ibv_sge sge = sge_of(reinterpret_cast<std::uintptr_t>(bytes.data()), 100, 0);
  ibv_send_wr wr = request(IBV_WR_SEND, &sge, 1);
  wr.send_flags |= IBV_SEND_INLINE;
  ASSERT_EQ(plain.post(wr), 0);
  constexpr std::size_t kBeforeEnd = 64 - 16 - 4;
  EXPECT_EQ(std::memcmp(plain.block(3) + 20, bytes.data(), kBeforeEnd), 0);
  EXPECT_EQ(std::memcmp(plain.block(0), bytes.data() + kBeforeEnd, 100 - kBeforeEnd), 0);
  EXPECT_EQ(plain.qp.sq.producer, 5U);
}

TEST(SendQueue, FullQueueRefusesAndNamesTheFirstRequestNotPosted) {
  PlainQueuePair plain(IBV_QPT_RC, 4);
  ibv_send_wr wr[6] = {};
  for (int i = 0; i < 6; ++i) {
    wr[i] = request(IBV_WR_SEND, nullptr, 0);
    wr[i].next = i < 5 ? &wr[i + 1] : nullptr;
  }
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(post_send(plain.base(), &wr[0], &bad), ENOMEM);
  EXPECT_EQ(bad, &wr[4]);
  EXPECT_EQ(plain.record[1].get(), 4U);
  plain.complete_all();
  EXPECT_EQ(post_send(plain.base(), &wr[4], &bad), 0);
  EXPECT_EQ(plain.record[1].get(), 6U);
}

TEST(SendQueue, SignalAllMarksEveryWqe) {
  PlainQueuePair plain(IBV_QPT_RC);
  plain.qp.sq.signal_all = prm::CtrlWords::kCqUpdate;
  ibv_send_wr wr = request(IBV_WR_SEND, nullptr, 0);
  wr.send_flags = 0;
  ASSERT_EQ(plain.post(wr), 0);
  EXPECT_EQ(CtrlSegment::completion::get(plain.block(0)), 2U);
}

TEST(SendQueue, OperationsThatTheTransportLacksAreRefused) {
  PlainQueuePair ud(IBV_QPT_UD);
  ibv_send_wr write = request(IBV_WR_RDMA_WRITE, nullptr, 0);
  EXPECT_EQ(ud.post(write), EINVAL);
  PlainQueuePair uc(IBV_QPT_UC);
  ibv_send_wr read = request(IBV_WR_RDMA_READ, nullptr, 0);
  EXPECT_EQ(uc.post(read), EINVAL);
}

TEST(SendQueue, NothingIsPostedBeforeReadyToSend) {
  PlainQueuePair plain(IBV_QPT_RC);
  plain.qp.can_send = false;
  ibv_send_wr wr = request(IBV_WR_SEND, nullptr, 0);
  EXPECT_EQ(plain.post(wr), EINVAL);
  EXPECT_EQ(plain.record[1].get(), 0U);
}

TEST(SendQueue, DoorbellIsTheStartOfTheLastControlSegment) {
  PlainQueuePair plain(IBV_QPT_RC);
  ibv_send_wr second = request(IBV_WR_SEND, nullptr, 0);
  ibv_send_wr first = request(IBV_WR_SEND, nullptr, 0);
  first.next = &second;
  ASSERT_EQ(plain.post(first), 0);
  EXPECT_EQ(std::memcmp(plain.page() + prm::Uar::blue_flame, plain.block(1), 8), 0);
}

TEST(SendQueue, BlueFlameAlternatesBetweenHalvesAndCopiesTheWqe) {
  constexpr std::uint32_t kHalf = 256;
  PlainQueuePair plain(IBV_QPT_RC, 16, kHalf);
  std::string text = "through the register";
  ibv_sge sge = sge_of(reinterpret_cast<std::uintptr_t>(text.data()),
                       static_cast<std::uint32_t>(text.size()), 0);
  ibv_send_wr wr = request(IBV_WR_SEND, &sge, 1);
  wr.send_flags |= IBV_SEND_INLINE;
  ASSERT_EQ(plain.post(wr), 0);
  EXPECT_EQ(std::memcmp(plain.page() + prm::Uar::blue_flame, plain.block(0), 64), 0);
  ASSERT_EQ(plain.post(wr), 0);
  EXPECT_EQ(std::memcmp(plain.page() + prm::Uar::blue_flame + kHalf, plain.block(1), 64), 0);
}

TEST(SendQueue, LocalInvalidateIsAUmrThatFreesTheKey) {
  PlainQueuePair plain(IBV_QPT_RC);
  ibv_send_wr wr = request(IBV_WR_LOCAL_INV, nullptr, 0);
  wr.invalidate_rkey = 0x12345678;
  ASSERT_EQ(plain.post(wr), 0);
  const std::uint8_t* wqe = plain.block(0);
  EXPECT_EQ(CtrlSegment::opcode::get(wqe), static_cast<unsigned>(prm::WqeOpcode::umr));
  EXPECT_EQ(CtrlSegment::immediate::get(wqe), 0x12345678U);
  EXPECT_EQ(prm::UmrCtrlSegment::check_qpn::get(wqe + 16), 1U);
  EXPECT_EQ(prm::UmrMkeySegment::free::get(plain.block(1)), 1U);
  // What is posted next must not overtake the invalidation.
  ibv_send_wr send = request(IBV_WR_SEND, nullptr, 0);
  ASSERT_EQ(plain.post(send), 0);
  EXPECT_EQ(CtrlSegment::fence_mode::get(plain.block(2)),
            static_cast<unsigned>(prm::FenceMode::initiator_small));
}

}  // namespace
}  // namespace softhca::provider
