// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <sys/stat.h>

#include <cerrno>

#include "tests/unit/vfio_user/fake_device.h"

namespace softhca::vfio_user::test {
namespace {

class RegionInfo : public ServerTest {
 protected:
  RawReply ask(std::uint32_t index, std::uint32_t argsz = sizeof(RegionInfoBody)) {
    RegionInfoBody body;
    body.argsz = argsz;
    body.index = index;
    return call(Command::device_get_region_info, Body(body).bytes());
  }
};

TEST_F(RegionInfo, PlainRegion) {
  const RawReply reply = ask(FakeDevice::kPlain);
  ASSERT_EQ(reply.body.size(), sizeof(RegionInfoBody));
  const auto info = reply.at<RegionInfoBody>(0);
  EXPECT_EQ(info.argsz, sizeof info);
  EXPECT_EQ(info.flags, kRegionRead | kRegionWrite);
  EXPECT_EQ(info.size, 8192U);
  EXPECT_EQ(info.cap_offset, 0U);
  EXPECT_TRUE(reply.fds.empty());
}

TEST_F(RegionInfo, AbsentRegionHasSizeZeroAndNoFlags) {
  const auto info = ask(1).at<RegionInfoBody>(0);
  EXPECT_EQ(info.size, 0U);
  EXPECT_EQ(info.flags, 0U);
}

TEST_F(RegionInfo, ReadOnlyRegion) {
  EXPECT_EQ(ask(FakeDevice::kReadOnly).at<RegionInfoBody>(0).flags, kRegionRead);
}

// QEMU first asks with room for the fixed part only. It refuses a device whose first answer has
// capabilities and cap_offset 0, and takes the descriptor from the second answer.
TEST_F(RegionInfo, AShortRequestLearnsTheSizeAndGetsNoDescriptor) {
  const std::size_t before = open_fds();
  const RawReply reply = ask(FakeDevice::kSparse);
  ASSERT_EQ(reply.body.size(), sizeof(RegionInfoBody));
  const auto info = reply.at<RegionInfoBody>(0);
  EXPECT_EQ(info.argsz, sizeof(RegionInfoBody) + sizeof(CapSparseMmap) + 2 * sizeof(MmapArea));
  EXPECT_EQ(info.flags, kRegionRead | kRegionWrite | kRegionMmap | kRegionCaps);
  EXPECT_EQ(info.cap_offset, 32U);
  EXPECT_TRUE(reply.fds.empty());
  EXPECT_EQ(open_fds(), before);
}

TEST_F(RegionInfo, AFullRequestGetsAreasAndDescriptor) {
  const RawReply reply = ask(FakeDevice::kSparse, 80);
  ASSERT_EQ(reply.body.size(), 80U);
  const auto cap = reply.at<CapSparseMmap>(32);
  EXPECT_EQ(cap.header.id, 1);
  EXPECT_EQ(cap.header.version, 1);
  EXPECT_EQ(cap.header.next, 0U);
  EXPECT_EQ(cap.nr_areas, 2U);
  EXPECT_EQ(reply.at<MmapArea>(48).offset, 4096U);
  EXPECT_EQ(reply.at<MmapArea>(64).offset, 12288U);
  EXPECT_EQ(reply.at<MmapArea>(64).size, 4096U);
  ASSERT_EQ(reply.fds.size(), 1U);
  struct stat sent {};
  struct stat own {};
  ASSERT_EQ(::fstat(reply.fds[0].get(), &sent), 0);
  ASSERT_EQ(::fstat(device.region_file.get(), &own), 0);
  EXPECT_EQ(sent.st_ino, own.st_ino);
}

TEST_F(RegionInfo, DeviceSpecificRegionHasATypeAndMapsWhole) {
  const RawReply reply = ask(FakeDevice::kTyped, 48);
  const auto info = reply.at<RegionInfoBody>(0);
  EXPECT_EQ(info.flags, kRegionRead | kRegionWrite | kRegionMmap | kRegionCaps);
  EXPECT_EQ(info.offset, 8192U);
  const auto cap = reply.at<CapRegionType>(32);
  EXPECT_EQ(cap.header.id, kCapRegionType);
  EXPECT_EQ(cap.type, 7U);
  EXPECT_EQ(cap.subtype, 8U);
  EXPECT_EQ(reply.fds.size(), 1U);
}

TEST_F(RegionInfo, MalformedRequestsAreRefused) {
  EXPECT_EQ(ask(10).error(), EINVAL) << "index of no region";
  EXPECT_EQ(ask(0xffffffff).error(), EINVAL);
  EXPECT_EQ(ask(0, 31).error(), EINVAL) << "argsz below the fixed part";
  EXPECT_EQ(error_of(Command::device_get_region_info, {}), EINVAL);
  EXPECT_EQ(error_of(Command::device_get_region_info, Body().fill(31, 0xff).bytes()), EINVAL);
}

}  // namespace
}  // namespace softhca::vfio_user::test
