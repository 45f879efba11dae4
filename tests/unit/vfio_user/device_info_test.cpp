// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <cerrno>

#include "tests/unit/vfio_user/fake_device.h"

namespace softhca::vfio_user::test {
namespace {

class DeviceInfo : public ServerTest {};

TEST_F(DeviceInfo, TellsRegionsAndInterrupts) {
  const RawReply reply = call(Command::device_get_info, Body(DeviceInfoBody{}).bytes());
  ASSERT_EQ(reply.error(), 0);
  ASSERT_EQ(reply.body.size(), sizeof(DeviceInfoBody));
  const auto info = reply.at<DeviceInfoBody>(0);
  EXPECT_EQ(info.argsz, sizeof(DeviceInfoBody));
  EXPECT_EQ(info.flags, kDeviceReset | kDevicePci);
  EXPECT_EQ(info.num_regions, 10U);
  EXPECT_EQ(info.num_irqs, kPciNumIrqs);
}

TEST_F(DeviceInfo, AcceptsRoomForMore) {
  DeviceInfoBody body;
  body.argsz = 64;
  EXPECT_EQ(call(Command::device_get_info, Body(body).bytes()).at<DeviceInfoBody>(0).argsz,
            sizeof body);
}

TEST_F(DeviceInfo, MalformedRequestsAreRefused) {
  EXPECT_EQ(error_of(Command::device_get_info, {}), EINVAL);
  EXPECT_EQ(error_of(Command::device_get_info, Body().fill(15).bytes()), EINVAL);
  DeviceInfoBody body;
  body.argsz = sizeof body - 1;
  EXPECT_EQ(error_of(Command::device_get_info, Body(body).bytes()), EINVAL);
}

TEST_F(DeviceInfo, DescriptorsAreRefusedAndClosed) {
  const std::size_t before = open_fds();
  const int fd = device.event.get();
  EXPECT_EQ(error_of(Command::device_get_info, Body(DeviceInfoBody{}).bytes(), {&fd, 1}), EINVAL);
  EXPECT_EQ(open_fds(), before);
}

TEST_F(DeviceInfo, ResetReachesTheDevice) {
  EXPECT_EQ(error_of(Command::device_reset, {}), 0);
  EXPECT_EQ(device.resets, 1);
}

TEST_F(DeviceInfo, ResetWithABodyIsRefused) {
  EXPECT_EQ(error_of(Command::device_reset, Body().fill(1).bytes()), EINVAL);
  EXPECT_EQ(device.resets, 0);
}

TEST_F(DeviceInfo, CommandsThatAreNotServedAreRefused) {
  EXPECT_EQ(error_of(Command::device_feature, Body().fill(8).bytes()), ENOTSUP);
  EXPECT_EQ(error_of(Command::dma_read, Body().fill(16).bytes()), EINVAL);
  EXPECT_EQ(error_of(Command::dma_write, Body().fill(16).bytes()), EINVAL);
  for (const int number : {0, 14, 17, 18, 19, 999, 65535}) {
    EXPECT_EQ(error_of(static_cast<Command>(number), {}), EINVAL) << number;
  }
}

}  // namespace
}  // namespace softhca::vfio_user::test
