// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/vfio-user/version.h"

#include <cerrno>
#include <string_view>

#include "tests/unit/vfio_user/fake_device.h"

namespace softhca::vfio_user::test {
namespace {

class Version : public ServerTest {
 protected:
  void SetUp() override { reconnect(); }

  static Body with_json(std::string_view json, std::uint16_t major = 0, std::uint16_t minor = 0) {
    Body body(VersionBody{major, minor});
    for (const char c : json) body.append(c);
    return body.append('\0');
  }
  void refuses(const Body& body, int error) {
    reconnect();
    EXPECT_EQ(error_of(Command::version, body.bytes()), error);
    EXPECT_FALSE(connected()) << "a client without common version is disconnected";
  }
};

TEST_F(Version, AnswersQemuWithVersionZeroZeroAndTerminatedJson) {
  const Body body = with_json(
      R"({"capabilities":{"pgsizes":4096,"max_msg_fds":16,"max_dma_maps":65535,)"
      R"("max_data_xfer_size":1048576,"migration":{"max_bitmap_size":268435456,"pgsize":4096},)"
      R"("write_multiple":true}})");
  const RawReply reply = call(Command::version, body.bytes());
  ASSERT_EQ(reply.error(), 0);
  VersionBody version{7, 7};
  Capabilities capabilities;
  ASSERT_TRUE(decode_version(reply.body, version, capabilities));
  EXPECT_EQ(version.major, 0);
  EXPECT_EQ(version.minor, 0);
  EXPECT_EQ(reply.body.back(), std::byte{0});
  EXPECT_EQ(capabilities.max_message_fds, 16U);
  EXPECT_EQ(capabilities.max_data_transfer, 1048576U);
  EXPECT_TRUE(capabilities.write_multiple);
}

TEST_F(Version, OffersWriteMultipleOnlyToWhoOffersIt) {
  const RawReply reply = call(Command::version, with_json("{}").bytes());
  VersionBody version;
  Capabilities capabilities;
  ASSERT_TRUE(decode_version(reply.body, version, capabilities));
  EXPECT_FALSE(capabilities.write_multiple);
}

TEST_F(Version, NeedsNoJson) {
  EXPECT_EQ(error_of(Command::version, Body(VersionBody{}).bytes()), 0);
}

TEST_F(Version, ANewerMinorIsAnsweredWithOurs) {
  const RawReply reply = call(Command::version, with_json("{}", 0, 9).bytes());
  EXPECT_EQ(reply.error(), 0);
  EXPECT_EQ(reply.at<std::uint16_t>(2), 0);
}

TEST_F(Version, AnotherMajorIsRefused) {
  refuses(with_json("{}", 1), ENOTSUP);
}

TEST_F(Version, MalformedDataIsRefused) {
  refuses(Body(std::uint16_t{0}), EINVAL);
  refuses(Body(VersionBody{}, '{', '}'), EINVAL);
  for (const char* json :
       {"{", "\"", "[]", "23", R"({"capabilities":"23"})",
        R"({"capabilities":{"max_msg_fds":"foo"}})", R"({"capabilities":{"max_msg_fds":-1}})",
        R"({"capabilities":{"max_msg_fds":4294967296}})",
        R"({"capabilities":{"max_data_xfer_size":0}})", R"({"capabilities":{"max_dma_maps":1.5}})",
        R"({"capabilities":{"pgsizes":null}})", R"({"capabilities":{"write_multiple":1}})"}) {
    SCOPED_TRACE(json);
    refuses(with_json(json), EINVAL);
  }
}

TEST_F(Version, DeeplyNestedDataIsRefused) {
  refuses(with_json(std::string(40'000, '[')), EINVAL);
  refuses(with_json(std::string(80'000, ' ') + "{}"), EINVAL);
}

TEST_F(Version, MustComeFirst) {
  EXPECT_EQ(error_of(Command::device_get_info, Body(DeviceInfoBody{}).bytes()), EINVAL);
  EXPECT_FALSE(connected());
}

TEST_F(Version, ComesOnce) {
  negotiate();
  EXPECT_EQ(error_of(Command::version, Body(VersionBody{}).bytes()), EINVAL);
  EXPECT_TRUE(connected());
}

TEST_F(Version, TakesNoDescriptors) {
  const int fd = device.event.get();
  const std::size_t before = open_fds();
  EXPECT_EQ(error_of(Command::version, Body(VersionBody{}).bytes(), {&fd, 1}), EINVAL);
  EXPECT_LT(open_fds(), before) << "the connection and what came with it are closed";
}

}  // namespace
}  // namespace softhca::vfio_user::test
