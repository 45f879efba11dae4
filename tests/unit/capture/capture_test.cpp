// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "emulator/capture/link_capture.h"
#include "emulator/capture/pcapng_writer.h"
#include "hw-model/ib/codec.h"
#include "hw-model/ib/mad.h"
#include "hw-model/ib/opcodes.h"
#include "tests/support/virtual_time.h"

namespace softhca::capture {
namespace {

using ib::Operation;
using ib::Service;

struct CommandResult {
  int status = -1;
  std::string output;
};

CommandResult run(const std::string& command) {
  CommandResult result;
  FILE* pipe = ::popen((command + " 2>/dev/null").c_str(), "r");
  if (pipe == nullptr) return result;
  char chunk[4096];
  while (const std::size_t size = std::fread(chunk, 1, sizeof chunk, pipe)) {
    result.output.append(chunk, size);
  }
  result.status = ::pclose(pipe);
  return result;
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, at);) parts.push_back(part);
  return parts;
}

ib::Packet sample(std::uint8_t opcode, std::size_t payload, bool grh, std::uint32_t psn) {
  ib::Packet packet;
  packet.path.slid = 2;
  packet.path.dlid = 3;
  packet.path.has_grh = grh;
  packet.path.grh.sgid = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  packet.path.grh.dgid = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2};
  packet.path.grh.hop_limit = 1;
  packet.bth.opcode = opcode;
  packet.bth.dest_qp = 0x123;
  packet.bth.psn = psn;
  packet.reth = {0x7f0000001000, 0x1801, 0x2000};
  packet.atomic_eth = {0x7f0000001000, 0x1801, 5, 6};
  packet.aeth = {0, 9};
  packet.deth = {0x11111111, 0x456};
  packet.immediate = 0xdeadbeef;
  if (ib::has_payload(opcode)) packet.payload.assign(payload, std::byte{0xa5});
  return packet;
}

class CaptureTest : public testing::Test {
 protected:
  CaptureTest() {
    char name[] = "/tmp/softhca-capture-XXXXXX";
    folder_ = ::mkdtemp(name);
    path_ = folder_ + "/packets.pcapng";
  }
  ~CaptureTest() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<PcapngWriter> create() {
    std::error_code error;
    auto writer = PcapngWriter::create(path_.c_str(), error);
    EXPECT_TRUE(writer) << error.message();
    return writer;
  }

  static bool have_tshark() { return run("command -v tshark").status == 0; }
  std::vector<std::string> tshark(const std::string& arguments) const {
    // Guessers that read past the end of a payload shorter than the header they look for.
    const auto result =
        run("tshark --disable-protocol rpcordma --disable-protocol infiniband.eoib -r " + path_ +
            " " + arguments);
    EXPECT_EQ(result.status, 0) << "tshark refuses the file";
    return split(result.output, '\n');
  }

  std::string folder_;
  std::string path_;
};

#define SKIP_WITHOUT_TSHARK() \
  if (!have_tshark()) GTEST_SKIP() << "tshark is not installed (package tshark)"

TEST_F(CaptureTest, TsharkDecodesEveryPacketKindWithoutAMalformedOne) {
  SKIP_WITHOUT_TSHARK();
  std::vector<ib::Packet> packets;
  std::uint32_t psn = 0xfff000;
  for (unsigned i = 0; i < 256; ++i) {
    const auto opcode = static_cast<std::uint8_t>(i);
    const Service service = ib::service_of(opcode);
    if (!ib::is_known(opcode) || service == Service::rd || service == Service::xrc) continue;
    for (const std::size_t payload : {0, 1, 7, 256, 4096}) {
      packets.push_back(sample(opcode, payload, payload == 7, psn++));
    }
  }
  {
    auto writer = create();
    const std::uint32_t link = writer->add_interface("left");
    std::vector<std::byte> bytes;
    std::uint64_t time = 1'700'000'000'123'456'789;
    for (const auto& packet : packets) {
      ASSERT_TRUE(ib::encode(packet, bytes));
      ASSERT_FALSE(writer->packet(link, time++, PacketDirection::outbound, bytes));
    }
    ASSERT_FALSE(writer->flush());
  }
  EXPECT_THAT(tshark("-Y _ws.malformed"), testing::IsEmpty());

  const auto lines = tshark(
      "-T fields -e frame.number -e infiniband.bth.opcode -e infiniband.bth.psn"
      " -e infiniband.bth.destqp -e infiniband.lrh.pktlen -e infiniband.bth.padcnt"
      " -e infiniband.reth.dmalen -e infiniband.immdt -e infiniband.aeth.msn"
      " -e infiniband.deth.srcqp -e infiniband.variant.crc -E occurrence=f");
  ASSERT_EQ(lines.size(), packets.size());
  for (std::size_t i = 0; i < packets.size(); ++i) {
    const ib::Packet& packet = packets[i];
    const std::uint8_t opcode = packet.bth.opcode;
    SCOPED_TRACE(std::string(ib::opcode_name(opcode)) + ": " + lines[i]);
    auto fields = split(lines[i], '\t');
    fields.resize(11);
    EXPECT_EQ(std::stoul(fields[1], nullptr, 0), opcode);
    EXPECT_EQ(std::stoul(fields[2], nullptr, 0), packet.bth.psn);
    EXPECT_EQ(std::stoul(fields[3], nullptr, 0), packet.bth.dest_qp);
    EXPECT_EQ(std::stoul(fields[4], nullptr, 0), (ib::encoded_size(packet) - 2) / 4);
    EXPECT_EQ(std::stoul(fields[5], nullptr, 0), (4 - packet.payload.size() % 4) % 4);
    EXPECT_EQ(fields[6].empty(), !ib::has_reth(opcode));
    if (ib::has_reth(opcode)) {
      EXPECT_EQ(std::stoul(fields[6], nullptr, 0), 0x2000U);
    }
    EXPECT_EQ(fields[7].empty(), !ib::has_immediate(opcode));
    EXPECT_EQ(fields[8].empty(), !ib::has_aeth(opcode));
    EXPECT_EQ(fields[9].empty(), !ib::has_deth(opcode));
    std::vector<std::byte> bytes;
    ib::encode(packet, bytes);
    const auto vcrc = std::to_integer<unsigned>(bytes[bytes.size() - 2]) << 8 |
                      std::to_integer<unsigned>(bytes.back());
    EXPECT_EQ(std::stoul(fields[10], nullptr, 0), vcrc) << "the headers end where they should";
  }
}

TEST_F(CaptureTest, TsharkDecodesManagementDatagrams) {
  SKIP_WITHOUT_TSHARK();
  ib::Packet packet =
      sample(ib::make_opcode(Service::ud, Operation::send_only), ib::kMadSize, false, 1);
  packet.vl = 15;
  packet.bth.dest_qp = ib::kQp0;
  packet.deth = {0, 0};
  std::array<std::uint8_t, ib::kMadSize> mad{};
  ib::MadHeader::base_version::set(mad.data(), 1);
  ib::MadHeader::mgmt_class::set(mad.data(), 1);
  ib::MadHeader::class_version::set(mad.data(), 1);
  ib::MadHeader::method::set(mad.data(), 0x81);
  ib::MadHeader::attribute_id::set(mad.data(), 0x15);
  ib::PortInfo::lid::set(ib::Smp::data::at(mad.data()), 0x77);
  ib::PortInfo::link_speed_ext_active::set(ib::Smp::data::at(mad.data()), 2);
  std::memcpy(packet.payload.bytes(), mad.data(), mad.size());
  {
    auto writer = create();
    std::vector<std::byte> bytes;
    ASSERT_TRUE(ib::encode(packet, bytes));
    writer->packet(writer->add_interface("left"), 1, PacketDirection::inbound, bytes);
  }
  EXPECT_THAT(tshark("-Y _ws.malformed"), testing::IsEmpty());
  const auto lines = tshark("-T fields -e infiniband.mad.attributeid -e infiniband.portinfo.lid");
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0], "0x0015\t0x0077");
}

TEST_F(CaptureTest, LinksTimesAndDirectionsAreKept) {
  SKIP_WITHOUT_TSHARK();
  {
    auto writer = create();
    std::vector<std::byte> bytes;
    ib::encode(sample(4, 8, false, 1), bytes);
    const auto left = writer->add_interface("left");
    writer->packet(left, 1'700'000'000'123'456'789, PacketDirection::outbound, bytes);
    const auto right = writer->add_interface("right");
    writer->packet(right, 1'700'000'000'123'456'790, PacketDirection::inbound, bytes);
  }
  const auto lines = tshark(
      "-T fields -e frame.interface_name -e frame.time_epoch -e frame.packet_flags_direction");
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0], "left\t1700000000.123456789\t0x00000002");
  EXPECT_EQ(lines[1], "right\t1700000000.123456790\t0x00000001");
}

TEST_F(CaptureTest, EmptyCaptureIsAValidFile) {
  SKIP_WITHOUT_TSHARK();
  create();
  EXPECT_THAT(tshark(""), testing::IsEmpty());
}

TEST_F(CaptureTest, FileThatCannotBeMadeSaysWhy) {
  std::error_code error;
  EXPECT_EQ(PcapngWriter::create((folder_ + "/no/such").c_str(), error), nullptr);
  EXPECT_EQ(error, std::errc::no_such_file_or_directory);
}

TEST_F(CaptureTest, FullDiskEndsTheCaptureWithItsError) {
  const int full = ::open("/dev/full", O_WRONLY);
  if (full < 0) GTEST_SKIP() << "/dev/full is missing here";
  PcapngWriter writer(full);
  const auto link = writer.add_interface("left");
  const std::vector<std::byte> bytes(4096);
  std::error_code error;
  for (int i = 0; i < 100 && !error; ++i) {
    error = writer.packet(link, 1, PacketDirection::unknown, bytes);
  }
  EXPECT_EQ(error, std::errc::no_space_on_device);
  EXPECT_EQ(writer.flush(), std::errc::no_space_on_device);
}

TEST_F(CaptureTest, ObserverOfAFabricWritesOneInterfacePerLink) {
  const softhca::test::VirtualClock clock(5000);
  LinkCapture capture(create(), clock);
  std::vector<std::byte> bytes;
  ib::encode(sample(4, 8, false, 1), bytes);
  capture.observe({"left", fabric::Direction::from_host, 5000, bytes});
  capture.observe({"right", fabric::Direction::to_host, 6000, bytes});
  capture.observe({"left", fabric::Direction::to_host, 7000, bytes});
  ASSERT_FALSE(capture.flush());
  EXPECT_EQ(capture.packets(), 3U);
  if (!have_tshark()) return;
  const auto lines = tshark("-T fields -e frame.interface_name -e frame.time_delta");
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[1], "right\t0.000001000");
  EXPECT_EQ(lines[2], "left\t0.000001000");
}

}  // namespace
}  // namespace softhca::capture
