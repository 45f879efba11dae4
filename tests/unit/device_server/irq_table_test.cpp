// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/device-server/irq_table.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>

namespace softhca::emulator::test {
namespace {

using namespace vfio_user;

class IrqTableTest : public ::testing::Test {
 protected:
  SetIrqsRequest request(std::uint32_t data, std::uint32_t action, std::uint32_t start,
                         std::uint32_t count, std::uint32_t index = kIrqMsix) {
    SetIrqsRequest result;
    result.index = index;
    result.data = data;
    result.action = action;
    result.start = start;
    result.count = count;
    return result;
  }
  std::errc attach(std::uint32_t vector, int fd) {
    auto r = request(kIrqSetDataEventFd, kIrqSetActionTrigger, vector, 1);
    r.eventfds.emplace_back(::dup(fd));
    return table.set(std::move(r));
  }
  void detach(std::uint32_t vector) {
    EXPECT_EQ(table.set(request(kIrqSetDataEventFd, kIrqSetActionTrigger, vector, 1)), std::errc{});
  }
  static std::uint64_t taken(const FileDescriptor& fd) {
    std::uint64_t count = 0;
    return ::read(fd.get(), &count, sizeof count) == 8 ? count : 0;
  }
  IrqTable table{8};
  FileDescriptor event{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
};

TEST_F(IrqTableTest, ARaisedVectorSignalsItsEventfd) {
  ASSERT_EQ(attach(3, event.get()), std::errc{});
  table.raise(3);
  table.raise(2);
  EXPECT_EQ(taken(event), 1U);
}

TEST_F(IrqTableTest, AVectorRaisedWhileDetachedIsSignalledWhenAttached) {
  table.raise(3);
  table.raise(3);
  EXPECT_TRUE(table.pending(3));
  ASSERT_EQ(attach(3, event.get()), std::errc{});
  EXPECT_EQ(taken(event), 1U);
  EXPECT_FALSE(table.pending(3));
  detach(3);
  table.raise(3);
  EXPECT_EQ(taken(event), 0U);
  ASSERT_EQ(attach(3, event.get()), std::errc{});
  EXPECT_EQ(taken(event), 1U);
}

TEST_F(IrqTableTest, ReplacingAnEventfdClosesTheOldOne) {
  ASSERT_EQ(attach(0, event.get()), std::errc{});
  const FileDescriptor other(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  ASSERT_EQ(attach(0, other.get()), std::errc{});
  table.raise(0);
  EXPECT_EQ(taken(event), 0U);
  EXPECT_EQ(taken(other), 1U);
}

TEST_F(IrqTableTest, SwitchingOffDetachesAllButForgetsNothing) {
  ASSERT_EQ(attach(0, event.get()), std::errc{});
  ASSERT_EQ(attach(7, event.get()), std::errc{});
  EXPECT_EQ(table.set(request(kIrqSetDataNone, kIrqSetActionTrigger, 0, 0)), std::errc{});
  table.raise(7);
  EXPECT_EQ(taken(event), 0U);
  EXPECT_TRUE(table.pending(7));
}

TEST_F(IrqTableTest, AClientMayTriggerVectorsItself) {
  ASSERT_EQ(attach(1, event.get()), std::errc{});
  EXPECT_EQ(table.set(request(kIrqSetDataNone, kIrqSetActionTrigger, 1, 1)), std::errc{});
  EXPECT_EQ(taken(event), 1U);
  const std::array<std::uint8_t, 2> flags{0, 1};
  auto r = request(kIrqSetDataBool, kIrqSetActionTrigger, 0, 2);
  r.flags = flags;
  EXPECT_EQ(table.set(std::move(r)), std::errc{});
  EXPECT_EQ(taken(event), 1U);
  EXPECT_FALSE(table.pending(0));
}

TEST_F(IrqTableTest, AMaskedLineStaysPendingUntilUnmasked) {
  auto r = request(kIrqSetDataEventFd, kIrqSetActionTrigger, 0, 1, kIrqIntx);
  r.eventfds.emplace_back(::dup(event.get()));
  ASSERT_EQ(table.set(std::move(r)), std::errc{});
  table.set(request(kIrqSetDataNone, kIrqSetActionMask, 0, 1, kIrqIntx));
  table.set(request(kIrqSetDataNone, kIrqSetActionTrigger, 0, 1, kIrqIntx));
  EXPECT_EQ(taken(event), 0U);
  table.set(request(kIrqSetDataNone, kIrqSetActionUnmask, 0, 1, kIrqIntx));
  EXPECT_EQ(taken(event), 1U);
}

TEST_F(IrqTableTest, WhatIsNotAnEventfdIsRefusedAndNothingChanges) {
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
  const FileDescriptor read_end(pipe[0]);
  const FileDescriptor write_end(pipe[1]);
  ASSERT_EQ(attach(0, event.get()), std::errc{});
  EXPECT_EQ(attach(0, write_end.get()), std::errc::invalid_argument);
  auto r = request(kIrqSetDataEventFd, kIrqSetActionTrigger, 0, 2);
  const FileDescriptor other(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  r.eventfds.emplace_back(::dup(other.get()));
  r.eventfds.emplace_back(::dup(write_end.get()));
  EXPECT_EQ(table.set(std::move(r)), std::errc::invalid_argument);
  table.raise(0);
  EXPECT_EQ(taken(event), 1U);
}

TEST_F(IrqTableTest, AFullBlockingEventfdDoesNotBlockTheDevice) {
  const FileDescriptor blocking(::eventfd(0, EFD_CLOEXEC));
  const std::uint64_t most = ~std::uint64_t{0} - 1;
  ASSERT_EQ(::write(blocking.get(), &most, sizeof most), 8);
  ASSERT_EQ(attach(0, blocking.get()), std::errc{});
  table.raise(0);
  EXPECT_EQ(taken(blocking), most);
}

TEST_F(IrqTableTest, AnEventfdThatIsMadeBlockingLaterDoesNotBlockTheDeviceEither) {
  ASSERT_EQ(attach(0, event.get()), std::errc{});
  const std::uint64_t most = ~std::uint64_t{0} - 1;
  ASSERT_EQ(::write(event.get(), &most, sizeof most), 8);
  ASSERT_EQ(::fcntl(event.get(), F_SETFL, 0), 0);
  table.raise(0);
  EXPECT_EQ(taken(event), most);
}

TEST_F(IrqTableTest, VectorsThatDoNotExistAreIgnored) {
  table.raise(8);
  table.raise(0xffff);
  EXPECT_FALSE(table.pending(8));
  EXPECT_EQ(table.set(request(kIrqSetDataNone, kIrqSetActionTrigger, 7, 2)),
            std::errc::invalid_argument);
  EXPECT_EQ(table.set(request(kIrqSetDataNone, kIrqSetActionTrigger, 0, 1, 5)),
            std::errc::invalid_argument);
}

TEST_F(IrqTableTest, AHeldVectorIsSignalledOnceOnDelivery) {
  ASSERT_EQ(attach(0, event.get()), std::errc{});
  table.hold();
  table.raise(0);
  table.raise(0);
  EXPECT_EQ(taken(event), 0U);
  table.deliver();
  EXPECT_EQ(taken(event), 1U);
  table.raise(0);
  table.clear_pending();
  table.deliver();
  EXPECT_EQ(taken(event), 0U) << "a reset forgets held vectors";
}

TEST_F(IrqTableTest, ResetForgetsWhatWasPendingAndKeepsEventfds) {
  ASSERT_EQ(attach(0, event.get()), std::errc{});
  table.raise(1);
  table.clear_pending();
  EXPECT_FALSE(table.pending(1));
  table.raise(0);
  EXPECT_EQ(taken(event), 1U);
}

TEST_F(IrqTableTest, NothingIsLeftOfAClientThatIsGone) {
  ASSERT_EQ(attach(0, event.get()), std::errc{});
  table.raise(1);
  table.drop();
  EXPECT_FALSE(table.pending(1));
  table.raise(0);
  EXPECT_EQ(taken(event), 0U);
}

}  // namespace
}  // namespace softhca::emulator::test
