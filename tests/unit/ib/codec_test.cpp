// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/ib/codec.h"

#include <gtest/gtest.h>

#include <algorithm>

#include <random>

#include "hw-model/ib/opcodes.h"

namespace softhca::ib {
namespace {

std::vector<std::byte> from_hex(std::string_view text) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i + 1 < text.size();) {
    if (text[i] == ' ') {
      ++i;
      continue;
    }
    bytes.push_back(
        static_cast<std::byte>(std::stoul(std::string(text.substr(i, 2)), nullptr, 16)));
    i += 2;
  }
  return bytes;
}

// The sample packet of IBA 7.8.3: RC RDMA WRITE only of 14 bytes, on VL 7.
constexpr std::string_view kSample =
    "7012375c 000e17d2 0a202487 0087b1b3 000dec2a 01710a1c 015d4002 38f27a05 0000000e"
    "bb884d85 fd5cfba4 728bc069 0ed40000";

/// A packet with every field of its opcode set to something that is not zero.
Packet sample_packet(std::uint8_t opcode, std::size_t payload, bool grh, std::uint32_t seed) {
  std::mt19937 random(seed);
  Packet packet;
  packet.vl = 3;
  packet.path.slid = 0x1234;
  packet.path.dlid = 0x4321;
  packet.path.sl = 5;
  packet.path.has_grh = grh;
  if (grh) {
    for (auto& byte : packet.path.grh.sgid) byte = static_cast<std::uint8_t>(random());
    for (auto& byte : packet.path.grh.dgid) byte = static_cast<std::uint8_t>(random());
    packet.path.grh.traffic_class = 0xa5;
    packet.path.grh.flow_label = 0xabcde;
    packet.path.grh.hop_limit = 64;
  }
  packet.bth = {opcode, true, true, 0x8001, true, false, 0x123456, true, 0xfedcba};
  if (has_reth(opcode)) packet.reth = {0x1122334455667788, 0x99aabbcc, 0xddeeff00};
  if (has_atomic_eth(opcode))
    packet.atomic_eth = {0x1122334455667788, 7, ~0ULL, 0x8000000000000001};
  if (has_aeth(opcode)) packet.aeth = {0x62, 0xabcdef};
  if (has_atomic_ack_eth(opcode)) packet.atomic_ack = 0x0123456789abcdef;
  if (has_deth(opcode)) packet.deth = {0x80010000, 0x654321};
  if (has_immediate(opcode)) packet.immediate = 0xdeadbeef;
  if (has_ieth(opcode)) packet.invalidate_key = 0xcafebabe;
  if (has_xrceth(opcode)) packet.xrc_srqn = 0x00abcd;
  if (has_payload(opcode)) {
    packet.payload.resize(payload);
    std::generate_n(packet.payload.bytes(), payload,
                    [&] { return static_cast<std::byte>(random()); });
  }
  return packet;
}

void expect_equal(const Packet& a, const Packet& b) {
  EXPECT_EQ(a.vl, b.vl);
  EXPECT_EQ(a.path.slid, b.path.slid);
  EXPECT_EQ(a.path.dlid, b.path.dlid);
  EXPECT_EQ(a.path.sl, b.path.sl);
  EXPECT_EQ(a.path.has_grh, b.path.has_grh);
  EXPECT_EQ(a.path.grh.sgid, b.path.grh.sgid);
  EXPECT_EQ(a.path.grh.dgid, b.path.grh.dgid);
  EXPECT_EQ(a.path.grh.traffic_class, b.path.grh.traffic_class);
  EXPECT_EQ(a.path.grh.flow_label, b.path.grh.flow_label);
  EXPECT_EQ(a.path.grh.hop_limit, b.path.grh.hop_limit);
  EXPECT_EQ(a.bth.opcode, b.bth.opcode);
  EXPECT_EQ(a.bth.solicited, b.bth.solicited);
  EXPECT_EQ(a.bth.migrated, b.bth.migrated);
  EXPECT_EQ(a.bth.pkey, b.bth.pkey);
  EXPECT_EQ(a.bth.fecn, b.bth.fecn);
  EXPECT_EQ(a.bth.becn, b.bth.becn);
  EXPECT_EQ(a.bth.dest_qp, b.bth.dest_qp);
  EXPECT_EQ(a.bth.ack_req, b.bth.ack_req);
  EXPECT_EQ(a.bth.psn, b.bth.psn);
  EXPECT_EQ(a.reth.va, b.reth.va);
  EXPECT_EQ(a.reth.rkey, b.reth.rkey);
  EXPECT_EQ(a.reth.length, b.reth.length);
  EXPECT_EQ(a.atomic_eth.va, b.atomic_eth.va);
  EXPECT_EQ(a.atomic_eth.rkey, b.atomic_eth.rkey);
  EXPECT_EQ(a.atomic_eth.swap_or_add, b.atomic_eth.swap_or_add);
  EXPECT_EQ(a.atomic_eth.compare, b.atomic_eth.compare);
  EXPECT_EQ(a.aeth.syndrome, b.aeth.syndrome);
  EXPECT_EQ(a.aeth.msn, b.aeth.msn);
  EXPECT_EQ(a.atomic_ack, b.atomic_ack);
  EXPECT_EQ(a.deth.qkey, b.deth.qkey);
  EXPECT_EQ(a.deth.src_qp, b.deth.src_qp);
  EXPECT_EQ(a.immediate, b.immediate);
  EXPECT_EQ(a.invalidate_key, b.invalidate_key);
  EXPECT_EQ(a.xrc_srqn, b.xrc_srqn);
  EXPECT_EQ(a.payload, b.payload);
}

TEST(Codec, SamplePacketOfTheSpecificationHasItsChecks) {
  auto bytes = from_hex(kSample);
  EXPECT_EQ(compute_icrc(bytes), 0x5ab72596U) << "stored as 96 25 b7 5a";
  const auto icrc = from_hex("9625b75a");
  bytes.insert(bytes.end(), icrc.begin(), icrc.end());
  EXPECT_EQ(compute_vcrc(bytes), 0xfa45U) << "stored as 45 fa";
}

TEST(Codec, SamplePacketOfTheSpecificationIsMadeAndRead) {
  const auto expected = from_hex(std::string(kSample) + "9625b75a 45fa");
  Packet packet;
  ASSERT_EQ(decode(expected, packet), DecodeStatus::ok);
  EXPECT_EQ(packet.vl, 7);
  EXPECT_EQ(packet.path.dlid, 0x375c);
  EXPECT_EQ(packet.path.slid, 0x17d2);
  EXPECT_EQ(packet.bth.opcode, make_opcode(Service::rc, Operation::rdma_write_only));
  EXPECT_EQ(packet.bth.dest_qp, 0x87b1b3U);
  EXPECT_EQ(packet.bth.psn, 0x0dec2aU);
  EXPECT_EQ(packet.reth.length, 14U);
  EXPECT_EQ(packet.payload.size(), 14U);
  std::vector<std::byte> bytes;
  ASSERT_TRUE(encode(packet, bytes));
  EXPECT_EQ(bytes, expected);
}

TEST(Codec, EveryOpcodeSurvivesEncodeAndDecode) {
  for (unsigned i = 0; i < 256; ++i) {
    const auto opcode = static_cast<std::uint8_t>(i);
    if (!is_known(opcode) || has_rdeth(opcode)) continue;
    for (const bool grh : {false, true}) {
      for (const std::size_t payload : {0, 1, 2, 3, 4, 255, 4096}) {
        SCOPED_TRACE(std::string(opcode_name(opcode)) + " payload " + std::to_string(payload));
        const Packet packet = sample_packet(opcode, payload, grh, i);
        std::vector<std::byte> bytes;
        ASSERT_TRUE(encode(packet, bytes));
        ASSERT_EQ(bytes.size(), encoded_size(packet));
        Packet back;
        ASSERT_EQ(decode(bytes, back), DecodeStatus::ok);
        expect_equal(packet, back);
      }
    }
  }
}

TEST(Codec, PacketBeyondThePacketLengthFieldIsRefused) {
  Packet packet = sample_packet(make_opcode(Service::rc, Operation::send_middle), 8188, false, 1);
  std::vector<std::byte> bytes;
  EXPECT_FALSE(encode(packet, bytes));
  EXPECT_TRUE(bytes.empty());
  packet.payload.resize(2047 * 4 - kLrhSize - kBthSize - kIcrcSize);
  EXPECT_TRUE(encode(packet, bytes));
  EXPECT_EQ(bytes.size(), kMaxWireSize);
}

TEST(Codec, AnyFlippedBitIsFoundByTheVariantCrc) {
  const Packet packet = sample_packet(0x0a, 64, true, 7);
  std::vector<std::byte> bytes;
  ASSERT_TRUE(encode(packet, bytes));
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<std::byte>(0x80U >> bit % 8);
    Packet back;
    EXPECT_EQ(decode(bytes, back), DecodeStatus::bad_vcrc) << "bit " << bit;
    bytes[bit / 8] ^= static_cast<std::byte>(0x80U >> bit % 8);
  }
}

TEST(Codec, DamageInsideASwitchIsFoundByTheInvariantCrc) {
  const Packet packet = sample_packet(0x0a, 64, false, 7);
  std::vector<std::byte> bytes;
  ASSERT_TRUE(encode(packet, bytes));
  for (std::size_t at = kLrhSize + 5; at < bytes.size() - kVcrcSize; ++at) {
    bytes[at] ^= std::byte{0x10};
    refresh_vcrc(bytes);
    Packet back;
    EXPECT_EQ(decode(bytes, back), DecodeStatus::bad_icrc) << "byte " << at;
    bytes[at] ^= std::byte{0x10};
  }
}

TEST(Codec, VariantFieldsMayChangeWithoutTheInvariantCrc) {
  Packet packet = sample_packet(0x0a, 64, true, 7);
  std::vector<std::byte> bytes;
  ASSERT_TRUE(encode(packet, bytes));
  bytes[0] = std::byte{0x10};             // LRH.VL
  bytes[kLrhSize + 7] = std::byte{0x01};  // GRH.HopLmt
  refresh_vcrc(bytes);
  Packet back;
  ASSERT_EQ(decode(bytes, back), DecodeStatus::ok);
  EXPECT_EQ(back.vl, 1);
  EXPECT_EQ(back.path.grh.hop_limit, 1);
}

/// Puts right both checks after a field was changed.
void repair(std::vector<std::byte>& bytes) {
  const std::size_t end = bytes.size() - kIcrcSize - kVcrcSize;
  const std::uint32_t icrc = compute_icrc(std::span(bytes).first(end));
  for (unsigned i = 0; i < 4; ++i) bytes[end + i] = static_cast<std::byte>(icrc >> 8 * i);
  refresh_vcrc(bytes);
}

TEST(Codec, EachMalformedHeaderIsNamed) {
  const auto damaged = [](std::uint8_t opcode, std::size_t at, std::byte value) {
    std::vector<std::byte> bytes;
    encode(sample_packet(opcode, 0, true, 3), bytes);
    bytes[at] = value;
    repair(bytes);
    Packet back;
    return decode(bytes, back);
  };
  const std::size_t bth = kLrhSize + kGrhSize;
  EXPECT_EQ(damaged(0x04, 0, std::byte{0x31}), DecodeStatus::bad_link_version);
  EXPECT_EQ(damaged(0x04, 1, std::byte{0x51}), DecodeStatus::not_iba_transport);
  EXPECT_EQ(damaged(0x04, 5, std::byte{0x7f}), DecodeStatus::bad_length);
  EXPECT_EQ(damaged(0x04, kLrhSize, std::byte{0x4a}), DecodeStatus::bad_grh);
  EXPECT_EQ(damaged(0x04, kLrhSize + 6, std::byte{0x11}), DecodeStatus::bad_grh);
  EXPECT_EQ(damaged(0x04, kLrhSize + 5, std::byte{0x01}), DecodeStatus::bad_length);
  EXPECT_EQ(damaged(0x04, bth, std::byte{0x1e}), DecodeStatus::unknown_opcode);
  EXPECT_EQ(damaged(0x04, bth, std::byte{0x44}), DecodeStatus::unknown_opcode) << "RD";
  EXPECT_EQ(damaged(0x04, bth, std::byte{0x06}), DecodeStatus::truncated) << "no room for RETH";
  EXPECT_EQ(damaged(0x04, bth + 1, std::byte{0xc1}), DecodeStatus::bad_transport_version);
  EXPECT_EQ(damaged(0x04, bth + 1, std::byte{0x30}), DecodeStatus::bad_pad);
  EXPECT_EQ(damaged(0x0a, bth, std::byte{0x11}), DecodeStatus::unexpected_payload)
      << "an ACK carries AETH only";
}

TEST(Codec, NoPrefixAndNoNoiseIsReadBeyondItsEnd) {
  std::vector<std::byte> bytes;
  ASSERT_TRUE(encode(sample_packet(0x0b, 100, true, 9), bytes));
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    std::vector<std::byte> prefix(bytes.begin(), bytes.begin() + static_cast<long>(length));
    Packet back;
    EXPECT_NE(decode(prefix, back), DecodeStatus::ok);
    if (length >= 26) {
      repair(prefix);
      EXPECT_NE(decode(prefix, back), DecodeStatus::ok);
    }
  }
  std::mt19937 random(1);
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::byte> noise(26 + random() % 100);
    for (auto& byte : noise) byte = static_cast<std::byte>(random());
    if (round % 2 == 0) {
      noise[0] &= std::byte{0xf0};
      noise[1] |= std::byte{2};
      const auto words = static_cast<std::uint8_t>((noise.size() - 2) / 4);
      noise[4] = std::byte{0};
      noise[5] = std::byte{words};
    }
    repair(noise);
    Packet back;
    (void)decode(noise, back);
  }
}

}  // namespace
}  // namespace softhca::ib
