// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <algorithm>
#include <array>
#include <cerrno>

#include "tests/unit/vfio_user/fake_device.h"

namespace softhca::vfio_user::test {
namespace {

class DmaMessage : public ServerTest {
 protected:
  struct Outcome {
    int calls = 0;
    std::errc error{};
    std::vector<std::byte> data;
  };
  Server::DmaCompletion into(Outcome& outcome) {
    return [&outcome](std::errc error, std::span<const std::byte> data) {
      ++outcome.calls;
      outcome.error = error;
      outcome.data.assign(data.begin(), data.end());
    };
  }
  void reply(const Header& command, std::span<const std::byte> body, int error = 0) {
    Header header;
    header.message_id = command.message_id;
    header.command = command.command;
    header.message_size = static_cast<std::uint32_t>(sizeof header + body.size());
    header.flags = kTypeReply | (error != 0 ? kFlagError : 0);
    header.error = static_cast<std::uint32_t>(error);
    std::vector<std::byte> bytes(header.message_size);
    std::memcpy(bytes.data(), &header, sizeof header);
    std::ranges::copy(body, bytes.begin() + sizeof header);
    send_raw(bytes);
    pump();
  }
};

TEST_F(DmaMessage, ReadsMemoryOfTheClient) {
  Outcome outcome;
  ASSERT_EQ(server.dma_read(0x1000, 4, into(outcome)), std::errc{});
  EXPECT_EQ(outcome.calls, 0);
  const auto request = receive();
  ASSERT_TRUE(request.has_value());
  EXPECT_EQ(request->header.command, Command::dma_read);
  EXPECT_EQ(request->header.flags, kTypeCommand);
  EXPECT_EQ(request->at<DmaAccessBody>(0).address, 0x1000U);
  EXPECT_EQ(request->at<DmaAccessBody>(0).count, 4U);
  reply(request->header, Body(DmaAccessBody{0x1000, 4}).fill(4, 0x33).bytes());
  EXPECT_EQ(outcome.calls, 1);
  EXPECT_EQ(outcome.error, std::errc{});
  EXPECT_EQ(outcome.data, std::vector<std::byte>(4, std::byte{0x33}));
}

TEST_F(DmaMessage, WritesMemoryOfTheClient) {
  Outcome outcome;
  const std::array<std::byte, 3> data{std::byte{1}, std::byte{2}, std::byte{3}};
  ASSERT_EQ(server.dma_write(0x2000, data, into(outcome)), std::errc{});
  const auto request = receive();
  ASSERT_TRUE(request.has_value());
  EXPECT_EQ(request->header.command, Command::dma_write);
  ASSERT_EQ(request->body.size(), 19U);
  EXPECT_EQ(request->body[18], std::byte{3});
  reply(request->header, Body(DmaAccessBody{0x2000, 3}).bytes());
  EXPECT_EQ(outcome.calls, 1);
  EXPECT_EQ(outcome.error, std::errc{});
}

TEST_F(DmaMessage, AWriteReplyMayCountInFourBytes) {
  Outcome outcome;
  const std::byte data{1};
  ASSERT_EQ(server.dma_write(0x2000, {&data, 1}, into(outcome)), std::errc{});
  reply(receive()->header, Body(std::uint64_t{0x2000}, std::uint32_t{1}).bytes());
  EXPECT_EQ(outcome.error, std::errc{});
  EXPECT_TRUE(connected());
}

TEST_F(DmaMessage, RepliesMayComeInAnyOrderAndBetweenCommands) {
  Outcome first;
  Outcome second;
  ASSERT_EQ(server.dma_read(0x1000, 1, into(first)), std::errc{});
  ASSERT_EQ(server.dma_read(0x2000, 1, into(second)), std::errc{});
  const auto a = receive();
  const auto b = receive();
  reply(b->header, Body(DmaAccessBody{0x2000, 1}).fill(1, 2).bytes());
  EXPECT_EQ(error_of(Command::device_get_info, Body(DeviceInfoBody{}).bytes()), 0);
  reply(a->header, Body(DmaAccessBody{0x1000, 1}).fill(1, 1).bytes());
  EXPECT_EQ(first.data.at(0), std::byte{1});
  EXPECT_EQ(second.data.at(0), std::byte{2});
}

TEST_F(DmaMessage, TheClientsErrorIsTheOutcome) {
  Outcome outcome;
  ASSERT_EQ(server.dma_read(0x1000, 4, into(outcome)), std::errc{});
  reply(receive()->header, {}, EFAULT);
  EXPECT_EQ(outcome.error, std::errc::bad_address);
  ASSERT_EQ(server.dma_read(0x1000, 4, into(outcome)), std::errc{});
  Header header = receive()->header;
  header.flags = 0;
  reply(header, {}, EINVAL);
  EXPECT_EQ(outcome.error, std::errc::invalid_argument);
  EXPECT_EQ(outcome.calls, 2);
  EXPECT_TRUE(connected());
}

TEST_F(DmaMessage, ARepliesThatDoesNotFitEndsTheConnection) {
  const std::array<Body, 5> bodies{
      Body(DmaAccessBody{0x1008, 4}).fill(4), Body(DmaAccessBody{0x1000, 4}).fill(3),
      Body(DmaAccessBody{0x1000, 5}).fill(5), Body(DmaAccessBody{0x1000, 4}), Body().fill(7)};
  for (const Body& body : bodies) {
    reconnect();
    negotiate();
    Outcome outcome;
    ASSERT_EQ(server.dma_read(0x1000, 4, into(outcome)), std::errc{});
    reply(receive()->header, body.bytes());
    EXPECT_EQ(outcome.calls, 1);
    EXPECT_EQ(outcome.error, std::errc::protocol_error);
    EXPECT_FALSE(connected());
  }
}

TEST_F(DmaMessage, TheEndOfTheConnectionCompletesWhatWaits) {
  Outcome outcome;
  ASSERT_EQ(server.dma_read(0x1000, 4, into(outcome)), std::errc{});
  client.reset();
  pump();
  EXPECT_EQ(outcome.calls, 1);
  EXPECT_EQ(outcome.error, std::errc::connection_reset);
}

TEST_F(DmaMessage, RequestsInFlightAreBounded) {
  Outcome outcome;
  int accepted = 0;
  std::errc error{};
  while (accepted < 100'000 && error == std::errc{}) {
    error = server.dma_read(0x1000, 4, into(outcome));
    if (error == std::errc{}) ++accepted;
  }
  EXPECT_EQ(error, std::errc::no_buffer_space);
  EXPECT_EQ(accepted, 256);
  EXPECT_EQ(outcome.calls, 0);
  server.disconnect("test");
  EXPECT_EQ(outcome.calls, 256) << "none is forgotten";
}

TEST_F(DmaMessage, ImpossibleRequestsAreRefused) {
  Outcome outcome;
  EXPECT_EQ(server.dma_read(0, server.max_dma_transfer() + 1, into(outcome)),
            std::errc::message_size);
  EXPECT_EQ(server.dma_read(0, 0, into(outcome)), std::errc::invalid_argument);
  server.disconnect("test");
  EXPECT_EQ(server.dma_read(0, 4, into(outcome)), std::errc::not_connected);
  reconnect();
  EXPECT_EQ(server.dma_read(0, 4, into(outcome)), std::errc::not_connected) << "not negotiated yet";
  EXPECT_EQ(outcome.calls, 0);
}

}  // namespace
}  // namespace softhca::vfio_user::test
