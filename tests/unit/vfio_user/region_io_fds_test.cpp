// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <cerrno>
#include <string_view>

#include "tests/unit/vfio_user/fake_device.h"

namespace softhca::vfio_user::test {
namespace {

class RegionIoFds : public ServerTest {
 protected:
  void SetUp() override {
    reconnect();
    Body version(VersionBody{});
    for (const char c : std::string_view(R"({"capabilities":{"max_msg_fds":2}})"))
      version.append(c);
    ASSERT_EQ(error_of(Command::version, version.append('\0').bytes()), 0);
  }
  RawReply ask(std::uint32_t index, std::uint32_t argsz) {
    RegionIoFdsBody body;
    body.argsz = argsz;
    body.index = index;
    return call(Command::device_get_region_io_fds, Body(body).bytes());
  }
};

TEST_F(RegionIoFds, GivesEventfdsWithTheirOffsets) {
  const RawReply reply = ask(FakeDevice::kTyped, 16 + 80);
  ASSERT_EQ(reply.body.size(), 96U);
  const auto head = reply.at<RegionIoFdsBody>(0);
  EXPECT_EQ(head.argsz, 96U);
  EXPECT_EQ(head.count, 2U);
  EXPECT_EQ(head.index, FakeDevice::kTyped);
  const auto second = reply.at<IoEventFdBody>(56);
  EXPECT_EQ(second.offset, 64U);
  EXPECT_EQ(second.size, 4U);
  EXPECT_EQ(second.fd_index, 1U);
  EXPECT_EQ(second.type, kIoFdIoEventFd);
  EXPECT_EQ(second.flags, 1U);
  EXPECT_EQ(second.datamatch, 17U);
  EXPECT_EQ(reply.fds.size(), 2U);
}

TEST_F(RegionIoFds, AShortRequestLearnsTheSize) {
  const RawReply reply = ask(FakeDevice::kTyped, 95);
  ASSERT_EQ(reply.body.size(), 16U);
  EXPECT_EQ(reply.at<RegionIoFdsBody>(0).argsz, 96U);
  EXPECT_EQ(reply.at<RegionIoFdsBody>(0).count, 0U);
  EXPECT_TRUE(reply.fds.empty());
}

TEST_F(RegionIoFds, ARegionWithoutAnyHasNone) {
  const RawReply reply = ask(FakeDevice::kPlain, 16);
  EXPECT_EQ(reply.error(), 0);
  EXPECT_EQ(reply.at<RegionIoFdsBody>(0).count, 0U);
  EXPECT_EQ(reply.at<RegionIoFdsBody>(0).argsz, 16U);
}

TEST_F(RegionIoFds, NeverMoreDescriptorsThanTheClientTakes) {
  reconnect();
  negotiate();  // Names no max_msg_fds: one.
  EXPECT_EQ(ask(FakeDevice::kTyped, 96).error(), EMSGSIZE);
}

TEST_F(RegionIoFds, MalformedRequestsAreRefused) {
  EXPECT_EQ(ask(10, 96).error(), EINVAL);
  EXPECT_EQ(ask(FakeDevice::kTyped, 15).error(), EINVAL);
  RegionIoFdsBody body;
  body.flags = 1;
  EXPECT_EQ(error_of(Command::device_get_region_io_fds, Body(body).bytes()), EINVAL);
  body.flags = 0;
  body.count = 1;
  EXPECT_EQ(error_of(Command::device_get_region_io_fds, Body(body).bytes()), EINVAL);
  EXPECT_EQ(error_of(Command::device_get_region_io_fds, Body().fill(15).bytes()), EINVAL);
}

}  // namespace
}  // namespace softhca::vfio_user::test
