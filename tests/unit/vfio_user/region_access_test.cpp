// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <algorithm>
#include <cerrno>

#include "tests/unit/vfio_user/fake_device.h"

namespace softhca::vfio_user::test {
namespace {

class RegionAccess : public ServerTest {
 protected:
  RawReply read(std::uint32_t region, std::uint64_t offset, std::uint32_t count) {
    return call(Command::region_read, Body(RegionAccessBody{offset, region, count}).bytes());
  }
  int write(std::uint32_t region, std::uint64_t offset, std::uint32_t count, std::size_t bytes) {
    return error_of(Command::region_write,
                    Body(RegionAccessBody{offset, region, count}).fill(bytes, 0x5a).bytes());
  }
};

TEST_F(RegionAccess, ReadsWhatWasWritten) {
  for (const std::uint32_t size : {1U, 2U, 4U, 8U, 4096U}) {
    const RawReply written =
        call(Command::region_write,
             Body(RegionAccessBody{16, 0, size}).fill(size, std::uint8_t(size)).bytes());
    ASSERT_EQ(written.error(), 0);
    ASSERT_EQ(written.body.size(), sizeof(RegionAccessBody));
    EXPECT_EQ(written.at<RegionAccessBody>(0).count, size);
    const RawReply reply = read(0, 16, size);
    ASSERT_EQ(reply.body.size(), sizeof(RegionAccessBody) + size);
    EXPECT_EQ(reply.at<RegionAccessBody>(0).offset, 16U);
    EXPECT_TRUE(std::all_of(reply.body.begin() + 16, reply.body.end(),
                            [&](std::byte b) { return b == std::byte(size); }));
  }
}

TEST_F(RegionAccess, TheLastByteIsReachableTheNextIsNot) {
  EXPECT_EQ(read(0, 8191, 1).error(), 0);
  EXPECT_EQ(read(0, 8192, 1).error(), EINVAL);
  EXPECT_EQ(read(0, 8191, 2).error(), EINVAL);
  EXPECT_EQ(write(0, 8191, 1, 1), 0);
  EXPECT_EQ(write(0, 8190, 4, 4), EINVAL);
}

TEST_F(RegionAccess, OffsetsThatWrapAreRefused) {
  EXPECT_EQ(read(0, ~std::uint64_t{0}, 1).error(), EINVAL);
  EXPECT_EQ(read(0, ~std::uint64_t{0} - 3, 8).error(), EINVAL);
  EXPECT_EQ(write(0, ~std::uint64_t{0} - 3, 8, 8), EINVAL);
}

TEST_F(RegionAccess, AbsurdSizesAreRefused) {
  EXPECT_EQ(read(0, 0, 0).error(), EINVAL);
  EXPECT_EQ(read(0, 0, 0xffffffff).error(), EINVAL);
  EXPECT_EQ(read(0, 0, (1 << 20) + 1).error(), EINVAL);
  EXPECT_EQ(write(0, 0, 0, 0), EINVAL);
  EXPECT_EQ(write(0, 0, 0xffffffff, 8), EINVAL);
  EXPECT_EQ(write(0, 0, 8, 7), EINVAL) << "count and data disagree";
  EXPECT_EQ(write(0, 0, 4, 8), EINVAL);
  EXPECT_TRUE(device.writes.empty());
}

TEST_F(RegionAccess, RegionsThatAreNotThereAreRefused) {
  EXPECT_EQ(read(1, 0, 1).error(), EINVAL) << "size 0";
  EXPECT_EQ(read(10, 0, 1).error(), EINVAL);
  EXPECT_EQ(read(0xffffffff, 0, 1).error(), EINVAL);
  EXPECT_EQ(write(10, 0, 1, 1), EINVAL);
}

TEST_F(RegionAccess, AReadOnlyRegionIsNotWritten) {
  EXPECT_EQ(read(FakeDevice::kReadOnly, 0, 4).error(), 0);
  EXPECT_EQ(write(FakeDevice::kReadOnly, 0, 4, 4), EPERM);
  EXPECT_TRUE(device.writes.empty());
}

TEST_F(RegionAccess, MappableRegionsAlsoAnswerMessages) {
  EXPECT_EQ(read(FakeDevice::kSparse, 4096, 8).error(), 0);
  EXPECT_EQ(write(FakeDevice::kSparse, 4096, 8, 8), 0);
}

TEST_F(RegionAccess, MalformedBodiesAreRefused) {
  EXPECT_EQ(error_of(Command::region_read, {}), EINVAL);
  EXPECT_EQ(error_of(Command::region_read, Body().fill(15).bytes()), EINVAL);
  EXPECT_EQ(error_of(Command::region_read, Body(RegionAccessBody{0, 0, 4}).fill(4).bytes()),
            EINVAL);
  EXPECT_EQ(error_of(Command::region_write, Body().fill(15).bytes()), EINVAL);
}

TEST_F(RegionAccess, TheDevicesErrorIsPassedOnWithoutABody) {
  device.next_error = std::errc::operation_not_permitted;
  const RawReply reply = read(0, 0, 8);
  EXPECT_EQ(reply.error(), EPERM);
  EXPECT_TRUE(reply.body.empty());
}

TEST_F(RegionAccess, APostedWriteGetsNoReply) {
  send(Command::region_write, Body(RegionAccessBody{0, 0, 8}).fill(8, 1).bytes(), {},
       kTypeCommand | kFlagNoReply);
  pump();
  EXPECT_FALSE(receive().has_value());
  EXPECT_EQ(device.writes.size(), 1U);
}

TEST_F(RegionAccess, AFailedPostedWriteGetsNoReplyEither) {
  send(Command::region_write, Body(RegionAccessBody{~0ULL, 0, 8}).fill(8, 1).bytes(), {},
       kTypeCommand | kFlagNoReply);
  pump();
  EXPECT_FALSE(receive().has_value());
  EXPECT_TRUE(connected());
}

TEST_F(RegionAccess, APostedWriteIsDoneBeforeALaterRead) {
  send(Command::region_write, Body(RegionAccessBody{8, 0, 1}).fill(1, 0x77).bytes(), {},
       kFlagNoReply);
  EXPECT_EQ(read(0, 8, 1).body.back(), std::byte{0x77});
}

}  // namespace
}  // namespace softhca::vfio_user::test
