// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <array>
#include <cerrno>

#include "tests/unit/vfio_user/fake_device.h"

namespace softhca::vfio_user::test {
namespace {

constexpr std::uint64_t kMax = ~std::uint64_t{0};

DmaMapBody map_body(std::uint64_t address = 0x10000, std::uint64_t size = 0x1000,
                    std::uint64_t offset = 0, std::uint32_t flags = kDmaRead | kDmaWrite) {
  DmaMapBody body;
  body.flags = flags;
  body.offset = offset;
  body.address = address;
  body.size = size;
  return body;
}

class DmaMap : public ServerTest {
 protected:
  int map(const DmaMapBody& body) { return error_of(Command::dma_map, Body(body).bytes()); }
};

TEST_F(DmaMap, HandsTheDescriptorOver) {
  const std::size_t before = open_fds();
  const int fd = device.region_file.get();
  const RawReply reply =
      call(Command::dma_map, Body(map_body(0x4000, 0x2000, 0x1000, kDmaRead)).bytes(), {&fd, 1});
  EXPECT_EQ(reply.error(), 0);
  EXPECT_TRUE(reply.body.empty());
  ASSERT_EQ(device.maps.size(), 1U);
  EXPECT_EQ(device.maps[0].iova, 0x4000U);
  EXPECT_EQ(device.maps[0].size, 0x2000U);
  EXPECT_EQ(device.maps[0].offset, 0x1000U);
  EXPECT_TRUE(device.maps[0].readable);
  EXPECT_FALSE(device.maps[0].writable);
  EXPECT_TRUE(device.maps[0].fd);
  EXPECT_EQ(open_fds(), before + 1);
  device.maps.clear();
  EXPECT_EQ(open_fds(), before);
}

TEST_F(DmaMap, NeedsNoDescriptor) {
  EXPECT_EQ(map(map_body()), 0);
  ASSERT_EQ(device.maps.size(), 1U);
  EXPECT_FALSE(device.maps[0].fd);
}

TEST_F(DmaMap, TheLastByteOfTheAddressSpaceIsOutOfReach) {
  EXPECT_EQ(map(map_body(kMax - 0xfff, 0xfff)), 0);
  EXPECT_EQ(map(map_body(kMax - 0xfff, 0x1000)), EINVAL) << "the end of a range must be an address";
}

TEST_F(DmaMap, EmptyAndWrappingRangesAreRefused) {
  EXPECT_EQ(map(map_body(0x1000, 0)), EINVAL);
  EXPECT_EQ(map(map_body(kMax - 0xfff, 0x1001)), EINVAL);
  EXPECT_EQ(map(map_body(0x1000, kMax)), EINVAL);
  EXPECT_EQ(map(map_body(0x1000, 0x1000, kMax - 0xffe)), EINVAL);
  EXPECT_TRUE(device.maps.empty());
}

TEST_F(DmaMap, MalformedRequestsAreRefused) {
  DmaMapBody body = map_body();
  body.argsz = sizeof body - 1;
  EXPECT_EQ(map(body), EINVAL);
  EXPECT_EQ(map(map_body(0, 0x1000, 0, 0)), EINVAL) << "neither readable nor writable";
  EXPECT_EQ(map(map_body(0, 0x1000, 0, kDmaRead | 4)), EINVAL) << "unknown flag";
  EXPECT_EQ(error_of(Command::dma_map, {}), EINVAL);
  EXPECT_EQ(error_of(Command::dma_map, Body(map_body()).bytes().first(31)), EINVAL);
  EXPECT_EQ(error_of(Command::dma_map, Body(map_body(), 0).bytes()), EINVAL);
  EXPECT_TRUE(device.maps.empty());
}

TEST_F(DmaMap, MoreThanOneDescriptorIsRefusedAndAllAreClosed) {
  const std::size_t before = open_fds();
  const std::array<int, 2> fds{device.region_file.get(), device.event.get()};
  EXPECT_EQ(error_of(Command::dma_map, Body(map_body()).bytes(), fds), EINVAL);
  EXPECT_EQ(open_fds(), before);
}

TEST_F(DmaMap, TheDevicesRefusalIsPassedOn) {
  for (const std::errc error : {std::errc::file_exists, std::errc::no_space_on_device}) {
    device.next_error = error;
    EXPECT_EQ(map(map_body()), static_cast<int>(error));
  }
}

TEST_F(DmaMap, ARefusedMapClosesItsDescriptor) {
  const std::size_t before = open_fds();
  const int fd = device.region_file.get();
  device.next_error = std::errc::file_exists;
  EXPECT_EQ(error_of(Command::dma_map, Body(map_body()).bytes(), {&fd, 1}), EEXIST);
  EXPECT_EQ(open_fds(), before);
}

class DmaUnmap : public ServerTest {
 protected:
  static DmaUnmapBody unmap_body(std::uint64_t address, std::uint64_t size,
                                 std::uint32_t flags = 0) {
    DmaUnmapBody body;
    body.flags = flags;
    body.address = address;
    body.size = size;
    return body;
  }
  int unmap(const DmaUnmapBody& body) { return error_of(Command::dma_unmap, Body(body).bytes()); }
};

TEST_F(DmaUnmap, EchoesTheRequest) {
  const DmaUnmapBody body = unmap_body(0x10000, 0x3000);
  const RawReply reply = call(Command::dma_unmap, Body(body).bytes());
  EXPECT_EQ(reply.error(), 0);
  ASSERT_EQ(reply.body.size(), sizeof body);
  EXPECT_EQ(std::memcmp(reply.body.data(), &body, sizeof body), 0);
  ASSERT_EQ(device.unmaps.size(), 1U);
  EXPECT_EQ(device.unmaps[0], std::pair(std::uint64_t{0x10000}, std::uint64_t{0x3000}));
}

TEST_F(DmaUnmap, AllAtOnce) {
  EXPECT_EQ(unmap(unmap_body(0, 0, kUnmapAll)), 0);
  EXPECT_EQ(device.unmap_alls, 1);
  EXPECT_EQ(unmap(unmap_body(1, 0, kUnmapAll)), EINVAL);
  EXPECT_EQ(unmap(unmap_body(0, 1, kUnmapAll)), EINVAL);
  EXPECT_EQ(device.unmap_alls, 1);
}

TEST_F(DmaUnmap, TheDevicesRefusalIsPassedOn) {
  device.next_error = std::errc::no_such_file_or_directory;
  EXPECT_EQ(unmap(unmap_body(0x10000, 0x1000)), ENOENT);
}

TEST_F(DmaUnmap, MalformedRequestsAreRefused) {
  EXPECT_EQ(unmap(unmap_body(0x10000, 0)), EINVAL);
  EXPECT_EQ(unmap(unmap_body(kMax, 2)), EINVAL);
  EXPECT_EQ(unmap(unmap_body(0, 0x1000, 8)), EINVAL);
  EXPECT_EQ(unmap(unmap_body(0, 0x1000, kUnmapGetDirtyBitmap)), ENOTSUP);
  DmaUnmapBody body = unmap_body(0x10000, 0x1000);
  body.argsz = sizeof body - 1;
  EXPECT_EQ(unmap(body), EINVAL);
  EXPECT_EQ(error_of(Command::dma_unmap, {}), EINVAL);
  EXPECT_EQ(error_of(Command::dma_unmap, Body(unmap_body(0, 1)).bytes().first(23)), EINVAL);
  EXPECT_EQ(error_of(Command::dma_unmap, Body(unmap_body(0, 1), 0).bytes()), EINVAL);
  EXPECT_TRUE(device.unmaps.empty());
}

}  // namespace
}  // namespace softhca::vfio_user::test
