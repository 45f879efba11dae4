// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <cerrno>

#include "tests/unit/vfio_user/fake_device.h"

namespace softhca::vfio_user::test {
namespace {

class RegionWriteMulti : public ServerTest {
 protected:
  static RegionWriteRecord record(std::uint64_t offset, std::uint32_t count, std::uint8_t value,
                                  std::uint32_t region = 0) {
    RegionWriteRecord result{offset, region, count, {}};
    std::memset(result.data, value, sizeof result.data);
    return result;
  }
};

TEST_F(RegionWriteMulti, WritesInOrder) {
  const Body body(RegionWriteMultiBody{3}, record(8, 8, 1), record(8, 4, 2), record(0, 1, 3));
  const RawReply reply = call(Command::region_write_multi, body.bytes());
  EXPECT_EQ(reply.error(), 0);
  EXPECT_EQ(reply.at<std::uint64_t>(0), 3U);
  using Write = std::pair<std::uint64_t, std::size_t>;
  EXPECT_EQ(device.writes, (std::vector<Write>{{8, 8}, {8, 4}, {0, 1}}));
  EXPECT_EQ(device.memory[8], std::byte{2});
  EXPECT_EQ(device.memory[12], std::byte{1});
}

TEST_F(RegionWriteMulti, PostedInBulk) {
  Body body(RegionWriteMultiBody{200});
  for (int i = 0; i < 200; ++i) body.append(record(8, 8, std::uint8_t(i)));
  send(Command::region_write_multi, body.bytes(), {}, kFlagNoReply);
  pump();
  EXPECT_FALSE(receive().has_value());
  EXPECT_EQ(device.writes.size(), 200U);
  EXPECT_EQ(device.memory[8], std::byte{199});
}

TEST_F(RegionWriteMulti, StopsAtTheFirstBadRecord) {
  const Body body(RegionWriteMultiBody{3}, record(0, 8, 1), record(8185, 8, 2), record(8, 8, 3));
  EXPECT_EQ(error_of(Command::region_write_multi, body.bytes()), EINVAL);
  EXPECT_EQ(device.writes.size(), 1U);
}

TEST_F(RegionWriteMulti, MalformedRequestsAreRefused) {
  const auto refuses = [&](const Body& body) {
    EXPECT_EQ(error_of(Command::region_write_multi, body.bytes()), EINVAL);
    EXPECT_TRUE(device.writes.empty());
  };
  refuses(Body());
  refuses(Body().fill(7));
  refuses(Body(RegionWriteMultiBody{0}));
  refuses(Body(RegionWriteMultiBody{2}, record(0, 8, 1)));
  refuses(Body(RegionWriteMultiBody{1}, record(0, 8, 1), record(0, 8, 1)));
  refuses(Body(RegionWriteMultiBody{1}, record(0, 8, 1), std::uint8_t{0}));
  // 24 * count wraps to 24.
  refuses(Body(RegionWriteMultiBody{0x2000000000000001}, record(0, 8, 1)));
  refuses(Body(RegionWriteMultiBody{1}, record(0, 0, 1)));
  refuses(Body(RegionWriteMultiBody{1}, record(0, 9, 1)));
  refuses(Body(RegionWriteMultiBody{1}, record(0, 0xffffffff, 1)));
  refuses(Body(RegionWriteMultiBody{1}, record(0, 8, 1, 10)));
  refuses(Body(RegionWriteMultiBody{1}, record(~0ULL, 8, 1)));
}

TEST_F(RegionWriteMulti, AReadOnlyRegionIsNotWritten) {
  const Body body(RegionWriteMultiBody{1}, record(0, 8, 1, FakeDevice::kReadOnly));
  EXPECT_EQ(error_of(Command::region_write_multi, body.bytes()), EPERM);
}

}  // namespace
}  // namespace softhca::vfio_user::test
