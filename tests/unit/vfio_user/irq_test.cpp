// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <sys/eventfd.h>

#include <array>
#include <cerrno>

#include "tests/unit/vfio_user/fake_device.h"

namespace softhca::vfio_user::test {
namespace {

class IrqInfo : public ServerTest {
 protected:
  RawReply ask(std::uint32_t index, std::uint32_t argsz = sizeof(IrqInfoBody)) {
    IrqInfoBody body;
    body.argsz = argsz;
    body.index = index;
    return call(Command::device_get_irq_info, Body(body).bytes());
  }
};

TEST_F(IrqInfo, TellsCountAndFlags) {
  const auto info = ask(kIrqMsix).at<IrqInfoBody>(0);
  EXPECT_EQ(info.argsz, sizeof info);
  EXPECT_EQ(info.index, kIrqMsix);
  EXPECT_EQ(info.count, FakeDevice::kMsixCount);
  EXPECT_EQ(info.flags, kIrqEventFd);
  EXPECT_EQ(ask(kIrqMsi).at<IrqInfoBody>(0).count, 0U);
}

TEST_F(IrqInfo, MalformedRequestsAreRefused) {
  EXPECT_EQ(ask(kPciNumIrqs).error(), EINVAL);
  EXPECT_EQ(ask(kIrqMsix, 15).error(), EINVAL);
  EXPECT_EQ(error_of(Command::device_get_irq_info, {}), EINVAL);
  EXPECT_EQ(error_of(Command::device_get_irq_info, Body().fill(15, 0xff).bytes()), EINVAL);
}

constexpr std::uint32_t kAttach = kIrqSetDataEventFd | kIrqSetActionTrigger;
constexpr std::uint32_t kNoneTrigger = kIrqSetDataNone | kIrqSetActionTrigger;

class SetIrqs : public ServerTest {
 protected:
  static SetIrqsBody request(std::uint32_t flags, std::uint32_t index, std::uint32_t start,
                             std::uint32_t count) {
    SetIrqsBody body;
    body.flags = flags;
    body.index = index;
    body.start = start;
    body.count = count;
    return body;
  }
  int set(std::uint32_t flags, std::uint32_t index, std::uint32_t start, std::uint32_t count,
          std::span<const int> fds = {}) {
    return error_of(Command::device_set_irqs, Body(request(flags, index, start, count)).bytes(),
                    fds);
  }
  void refuses(std::uint32_t flags, std::uint32_t index, std::uint32_t start, std::uint32_t count,
               std::span<const int> fds = {}) {
    const std::size_t before = open_fds();
    EXPECT_EQ(set(flags, index, start, count, fds), EINVAL)
        << std::hex << flags << " index " << index << " start " << start << " count " << count;
    EXPECT_EQ(open_fds(), before) << "descriptors of a refused request are closed";
    EXPECT_TRUE(device.irq_requests.empty());
  }
};

TEST_F(SetIrqs, AttachesEventfds) {
  const std::array<int, 2> fds{device.event.get(), device.event.get()};
  EXPECT_EQ(set(kAttach, kIrqMsix, 3, 2, fds), 0);
  ASSERT_EQ(device.irq_requests.size(), 1U);
  const auto& seen = device.irq_requests[0];
  EXPECT_EQ(seen.index, kIrqMsix);
  EXPECT_EQ(seen.start, 3U);
  EXPECT_EQ(seen.count, 2U);
  EXPECT_EQ(seen.data, kIrqSetDataEventFd);
  EXPECT_EQ(seen.action, kIrqSetActionTrigger);
  EXPECT_EQ(seen.eventfds.size(), 2U);
}

TEST_F(SetIrqs, WithoutEventfdDetaches) {
  EXPECT_EQ(set(kAttach, kIrqMsix, 0, 1), 0);
  ASSERT_EQ(device.irq_requests.size(), 1U);
  EXPECT_TRUE(device.irq_requests[0].eventfds.empty());
}

TEST_F(SetIrqs, CountZeroSwitchesTheIndexOff) {
  EXPECT_EQ(set(kNoneTrigger, kIrqMsix, 0, 0), 0);
  EXPECT_EQ(set(kNoneTrigger, kIrqMsi, 0, 0), 0) << "also where there are no interrupts";
  ASSERT_EQ(device.irq_requests.size(), 2U);
  EXPECT_EQ(device.irq_requests[0].count, 0U);
}

TEST_F(SetIrqs, BooleansAreHandedOver) {
  Body body(request(kIrqSetDataBool | kIrqSetActionTrigger, kIrqMsix, 1, 3));
  body.append(std::uint8_t{1}).append(std::uint8_t{0}).append(std::uint8_t{1});
  EXPECT_EQ(error_of(Command::device_set_irqs, body.bytes()), 0);
  EXPECT_EQ(device.irq_flags, (std::vector<std::uint8_t>{1, 0, 1}));
}

TEST_F(SetIrqs, MaskingWorksWhereTheIndexAllowsIt) {
  EXPECT_EQ(set(kIrqSetDataNone | kIrqSetActionMask, kIrqIntx, 0, 1), 0);
  EXPECT_EQ(set(kIrqSetDataNone | kIrqSetActionUnmask, kIrqIntx, 0, 1), 0);
  device.irq_requests.clear();
  for (const std::uint32_t index : {kIrqMsix, kIrqErr, kIrqReq}) {
    refuses(kIrqSetDataNone | kIrqSetActionMask, index, 0, 1);
    refuses(kIrqSetDataNone | kIrqSetActionUnmask, index, 0, 1);
  }
}

TEST_F(SetIrqs, RangesOutsideOfTheIndexAreRefused) {
  refuses(kNoneTrigger, kPciNumIrqs, 0, 0);
  refuses(kNoneTrigger, 0xffffffff, 0, 1);
  refuses(kNoneTrigger, kIrqMsix, FakeDevice::kMsixCount, 1);
  refuses(kNoneTrigger, kIrqMsix, FakeDevice::kMsixCount - 1, 2);
  refuses(kNoneTrigger, kIrqMsix, 0xffffffff, 1);
  refuses(kNoneTrigger, kIrqMsix, 8, 0xffffffff);
  refuses(kAttach, kIrqMsix, 8, 0xfffffff8);
  refuses(kNoneTrigger, kIrqErr, 0, 2);
  refuses(kNoneTrigger, kIrqReq, 1, 1);
  refuses(kNoneTrigger, kIrqMsi, 0, 1);
}

TEST_F(SetIrqs, CountZeroIsOnlyForSwitchingOff) {
  refuses(kNoneTrigger, kIrqMsix, 1, 0);
  refuses(kAttach, kIrqMsix, 0, 0);
  refuses(kIrqSetDataBool | kIrqSetActionTrigger, kIrqMsix, 0, 0);
  refuses(kIrqSetDataNone | kIrqSetActionMask, kIrqIntx, 0, 0);
}

TEST_F(SetIrqs, ExactlyOneDataAndOneActionFlag) {
  refuses(0, kIrqIntx, 0, 1);
  refuses(kIrqSetDataNone, kIrqIntx, 0, 1);
  refuses(kIrqSetActionTrigger, kIrqIntx, 0, 1);
  refuses(kIrqSetDataNone | kIrqSetActionMask | kIrqSetActionUnmask, kIrqIntx, 0, 1);
  refuses(kIrqSetDataNone | kIrqSetDataBool | kIrqSetActionTrigger, kIrqIntx, 0, 1);
  refuses(kNoneTrigger | 0x40, kIrqIntx, 0, 1);
  refuses(0xffffffff, kIrqIntx, 0, 1);
}

TEST_F(SetIrqs, DescriptorsMustMatchTheRequest) {
  const std::array<int, 3> fds{device.event.get(), device.event.get(), device.event.get()};
  refuses(kNoneTrigger, kIrqMsix, 0, 1, std::span(fds).first(1));
  refuses(kAttach, kIrqMsix, 0, 2, std::span(fds).first(1));
  refuses(kAttach, kIrqMsix, 0, 2, fds);
  refuses(kIrqSetDataBool | kIrqSetActionTrigger, kIrqMsix, 0, 1, std::span(fds).first(1));
}

TEST_F(SetIrqs, MoreDescriptorsThanAnnouncedAreRefusedAndClosed) {
  std::vector<int> fds(17, device.event.get());
  refuses(kAttach, kIrqMsix, 0, 17, fds);
}

TEST_F(SetIrqs, AFloodOfDescriptorsIsClosed) {
  const std::size_t before = open_fds();
  const std::vector<int> fds(200, device.event.get());
  EXPECT_EQ(set(kAttach, kIrqMsix, 0, 200, fds), EMFILE);
  EXPECT_EQ(open_fds(), before);
  EXPECT_TRUE(connected());
}

TEST_F(SetIrqs, MalformedBodiesAreRefused) {
  EXPECT_EQ(error_of(Command::device_set_irqs, {}), EINVAL);
  EXPECT_EQ(error_of(Command::device_set_irqs, Body().fill(19).bytes()), EINVAL);
  SetIrqsBody body = request(kNoneTrigger, kIrqMsix, 0, 1);
  body.argsz = 3;
  EXPECT_EQ(error_of(Command::device_set_irqs, Body(body).bytes()), EINVAL);
  body = request(kIrqSetDataBool | kIrqSetActionTrigger, kIrqMsix, 0, 4);
  EXPECT_EQ(error_of(Command::device_set_irqs, Body(body).fill(3, 1).bytes()), EINVAL);
  EXPECT_EQ(error_of(Command::device_set_irqs, Body(body).fill(5, 1).bytes()), EINVAL);
  body = request(kNoneTrigger, kIrqMsix, 0, 1);
  EXPECT_EQ(error_of(Command::device_set_irqs, Body(body).fill(1).bytes()), EINVAL);
  EXPECT_TRUE(device.irq_requests.empty());
}

}  // namespace
}  // namespace softhca::vfio_user::test
