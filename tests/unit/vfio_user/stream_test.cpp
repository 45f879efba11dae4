// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "tests/unit/vfio_user/fake_device.h"

namespace softhca::vfio_user::test {
namespace {

std::vector<std::byte> message(Command command, std::span<const std::byte> body,
                               std::uint16_t id = 1, std::uint32_t flags = kTypeCommand) {
  Header header;
  header.message_id = id;
  header.command = command;
  header.message_size = static_cast<std::uint32_t>(sizeof header + body.size());
  header.flags = flags;
  std::vector<std::byte> bytes(header.message_size);
  std::memcpy(bytes.data(), &header, sizeof header);
  std::ranges::copy(body, bytes.begin() + sizeof header);
  return bytes;
}

std::vector<std::byte> bare_header(std::uint32_t size, std::uint32_t flags = kTypeCommand) {
  Header header;
  header.message_id = 9;
  header.command = Command::device_set_irqs;
  header.message_size = size;
  header.flags = flags;
  return {wire_bytes(header).begin(), wire_bytes(header).end()};
}

class Stream : public ServerTest {
 protected:
  explicit Stream(ServerLimits limits = {}) : ServerTest(limits) {}
  static std::vector<std::byte> write_message(std::uint64_t offset, std::uint8_t value,
                                              std::uint16_t id = 1) {
    return message(Command::region_write,
                   Body(RegionAccessBody{offset, 0, 1}).fill(1, value).bytes(), id);
  }
};

TEST_F(Stream, AMessageMayArriveByteByByte) {
  for (const std::byte byte : write_message(5, 0x11)) {
    EXPECT_TRUE(device.writes.empty());
    send_raw({&byte, 1});
    pump();
  }
  EXPECT_EQ(device.memory[5], std::byte{0x11});
  EXPECT_TRUE(receive().has_value());
}

TEST_F(Stream, ManyMessagesMayArriveAtOnce) {
  std::vector<std::byte> bytes;
  for (std::uint16_t i = 0; i < 1000; ++i) {
    const auto one = write_message(i, std::uint8_t(i), i);
    bytes.insert(bytes.end(), one.begin(), one.end());
  }
  send_raw(bytes);
  pump();
  for (std::uint16_t i = 0; i < 1000; ++i) {
    auto reply = receive();
    if (!reply) {
      server.on_writable();
      reply = receive();
    }
    ASSERT_TRUE(reply.has_value());
    EXPECT_EQ(reply->header.message_id, i) << "replies come in the order of the commands";
    EXPECT_EQ(reply->error(), 0);
  }
}

TEST_F(Stream, OneCallHandlesABoundedNumberOfMessages) {
  std::vector<std::byte> bytes;
  for (std::uint16_t i = 0; i < 300; ++i) {
    const auto one = write_message(i, 1, i);
    bytes.insert(bytes.end(), one.begin(), one.end());
  }
  send_raw(bytes);
  EXPECT_TRUE(server.on_readable()) << "says that more is waiting";
  EXPECT_EQ(device.writes.size(), ServerLimits{}.messages_per_call);
  EXPECT_FALSE(server.on_readable());
  EXPECT_EQ(device.writes.size(), 300U);
}

class FewBytes : public Stream {
 protected:
  FewBytes() : Stream({.bytes_per_call = 1}) {}
};

TEST_F(FewBytes, OneCallReadsABoundedNumberOfBytes) {
  const auto bytes =
      message(Command::region_write, Body(RegionAccessBody{0, 0, 8192}).fill(8192).bytes());
  constexpr std::size_t kMessages = 20;
  for (std::size_t i = 0; i < kMessages; ++i) send_raw(bytes);
  EXPECT_TRUE(server.on_readable()) << "says that more may be waiting";
  EXPECT_LT(device.writes.size(), kMessages);
  while (server.on_readable()) {
  }
  EXPECT_EQ(device.writes.size(), kMessages);
}

TEST_F(Stream, LargeMessagesPass) {
  RegionAccessBody access{0, 0, 8192};
  const auto bytes = message(Command::region_write, Body(access).fill(8192, 0x42).bytes());
  for (std::size_t i = 0; i < bytes.size(); i += 1000) {
    send_raw(std::span(bytes).subspan(i, std::min<std::size_t>(1000, bytes.size() - i)));
    pump();
  }
  EXPECT_EQ(device.memory[8191], std::byte{0x42});
}

TEST_F(Stream, DescriptorsBelongToTheMessageTheyCameWith) {
  DmaMapBody map;
  map.flags = kDmaRead;
  map.size = 4096;
  const int fd = device.region_file.get();
  const auto map_message = message(Command::dma_map, Body(map).bytes());
  send_raw(write_message(0, 1));
  send_raw(map_message);
  send_raw(map_message, {&fd, 1});
  send_raw(map_message);
  send_raw(write_message(0, 2));
  pump();
  ASSERT_EQ(device.maps.size(), 3U);
  EXPECT_FALSE(device.maps[0].fd);
  EXPECT_TRUE(device.maps[1].fd);
  EXPECT_FALSE(device.maps[2].fd);
  EXPECT_EQ(device.writes.size(), 2U);
}

TEST_F(Stream, DescriptorsOfAMessageInPiecesAreKept) {
  DmaMapBody map;
  map.flags = kDmaRead;
  map.size = 4096;
  const int fd = device.region_file.get();
  const auto bytes = message(Command::dma_map, Body(map).bytes());
  send_raw(std::span(bytes).first(3), {&fd, 1});
  pump();
  send_raw(std::span(bytes).subspan(3));
  pump();
  ASSERT_EQ(device.maps.size(), 1U);
  EXPECT_TRUE(device.maps[0].fd);
}

TEST_F(Stream, DescriptorsOfAnUnfinishedMessageAreBounded) {
  const std::size_t before = open_fds();
  const std::vector<int> fds(50, device.event.get());
  const auto bytes = message(Command::device_get_info, Body().fill(1000).bytes());
  for (std::size_t i = 0; i < 60; ++i) {
    send_raw(std::span(bytes).subspan(i, 1), fds);
    pump();
    ASSERT_LE(open_fds(), before + kMaxMessageFds);
  }
  send_raw(std::span(bytes).subspan(60));
  pump();
  EXPECT_EQ(receive()->error(), EMFILE);
  EXPECT_EQ(open_fds(), before);
}

TEST_F(Stream, AnUnfinishedMessageHoldsNoDescriptorsAfterTheEnd) {
  const std::size_t before = open_fds();
  const int fd = device.event.get();
  const auto bytes = message(Command::dma_map, Body().fill(32).bytes());
  send_raw(std::span(bytes).first(20), {&fd, 1});
  pump();
  EXPECT_EQ(open_fds(), before + 1);
  client.reset();
  pump();
  EXPECT_FALSE(connected());
  EXPECT_EQ(open_fds(), before - 2) << "both ends of the connection and the descriptor are closed";
}

TEST_F(Stream, ImpossibleSizesAreRefusedAndEndTheConnection) {
  for (const std::uint32_t size : {0U, 15U, (1U << 20) + 33, 0x80000000U, 0xffffffffU}) {
    reconnect();
    negotiate();
    send_raw(bare_header(size));
    pump();
    const auto reply = receive();
    ASSERT_TRUE(reply.has_value()) << size;
    EXPECT_EQ(reply->error(), EINVAL);
    EXPECT_EQ(reply->header.message_id, 9);
    EXPECT_FALSE(connected()) << "where the next message starts is unknown";
  }
}

TEST_F(Stream, ImpossibleSizesBeforeTheVersionEndTheConnection) {
  reconnect();
  send_raw(bare_header(0xffffffff));
  pump();
  EXPECT_FALSE(connected());
}

TEST_F(Stream, AReplyToNothingEndsTheConnection) {
  send_raw(bare_header(16, kTypeReply));
  pump();
  EXPECT_FALSE(receive().has_value());
  EXPECT_FALSE(connected());
}

TEST_F(Stream, AnUnknownMessageTypeEndsTheConnection) {
  send_raw(bare_header(16, 7));
  pump();
  EXPECT_FALSE(connected());
}

TEST_F(Stream, TheDeviceLearnsOnceThatTheClientIsGone) {
  const int before = device.disconnects;
  const auto bytes = write_message(0, 1);
  send_raw(std::span(bytes).first(7));
  client.reset();
  pump();
  pump();
  EXPECT_EQ(device.disconnects, before + 1);
  EXPECT_EQ(server.connection_fd(), -1);
}

TEST_F(Stream, WhatWasSentBeforeTheEndIsStillDone) {
  send_raw(write_message(0, 0x66));
  client.reset();
  pump();
  EXPECT_EQ(device.memory[0], std::byte{0x66});
}

class Backpressure : public Stream {
 protected:
  static ServerLimits limits() {
    ServerLimits limits;
    limits.max_output = 1 << 20;
    return limits;
  }
  Backpressure() : Stream(limits()) {}
  void ask_for_pages(int count) {
    for (int i = 0; i < count && connected(); ++i) {
      send(Command::region_read, Body(RegionAccessBody{0, 0, 4096}).bytes());
      pump();
    }
  }
};

TEST_F(Backpressure, RepliesWaitForASlowClient) {
  ask_for_pages(150);
  ASSERT_TRUE(connected());
  EXPECT_TRUE(server.wants_write()) << "the socket buffer is smaller than what was asked";
  int replies = 0;
  for (int round = 0; round < 1000 && replies < 150; ++round) {
    while (const auto reply = receive()) {
      EXPECT_EQ(reply->body.size(), 16U + 4096U);
      ++replies;
    }
    server.on_writable();
  }
  EXPECT_EQ(replies, 150);
  EXPECT_FALSE(server.wants_write());
}

TEST_F(Backpressure, DescriptorsWaitToo) {
  const std::size_t before = open_fds();
  ask_for_pages(150);
  ASSERT_TRUE(server.wants_write());
  RegionInfoBody info;
  info.index = FakeDevice::kSparse;
  info.argsz = 80;
  send(Command::device_get_region_info, Body(info).bytes());
  pump();
  EXPECT_EQ(open_fds(), before + 1) << "held for the client";
  std::optional<RawReply> last;
  for (int round = 0; round < 1000; ++round) {
    while (auto reply = receive()) last = std::move(reply);
    server.on_writable();
  }
  ASSERT_TRUE(last.has_value());
  EXPECT_EQ(last->header.command, Command::device_get_region_info);
  EXPECT_EQ(last->fds.size(), 1U);
}

TEST_F(Backpressure, AClientThatNeverReadsIsDisconnected) {
  ask_for_pages(2000);
  EXPECT_FALSE(connected());
  EXPECT_EQ(device.last_reason, "client does not read its replies");
}

TEST_F(Backpressure, AConnectionThatEndsWithRepliesWaitingLeaksNothing) {
  const std::size_t before = open_fds();
  for (int i = 0; i < 20; ++i) {
    reconnect();
    negotiate();
    ask_for_pages(100);
  }
  reconnect();
  EXPECT_EQ(open_fds(), before);
}

}  // namespace
}  // namespace softhca::vfio_user::test
