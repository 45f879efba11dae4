// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/unit/vfio_user/fake_device.h"

#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <filesystem>

namespace softhca::vfio_user::test {

std::size_t open_fds() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++count;
  }
  return count;
}

FakeDevice::FakeDevice()
    : memory(8192),
      region_file(::memfd_create("region", MFD_CLOEXEC)),
      event(::eventfd(0, EFD_CLOEXEC)) {
  EXPECT_EQ(::ftruncate(region_file.get(), 16384), 0);
}

std::vector<ServerRegion> FakeDevice::regions() {
  std::vector<ServerRegion> regions(10);
  regions[kPlain] = {memory.size(), true, true, -1, 0, {}, {}};
  regions[kSparse] = {16384, true, true, region_file.get(), 0, {{4096, 4096}, {12288, 4096}}, {}};
  regions[kReadOnly] = {256, true, false, -1, 0, {}, {}};
  regions[kTyped] = {
      4096, true, true, region_file.get(), 8192, {}, CapRegionType{{kCapRegionType}, 7, 8}};
  return regions;
}

std::vector<ServerIrq> FakeDevice::irqs() {
  return {{1, kIrqEventFd | kIrqMaskable | kIrqAutomasked},
          {0, 0},
          {kMsixCount, kIrqEventFd},
          {1, kIrqEventFd},
          {1, kIrqEventFd}};
}

std::vector<ServerIoEventFd> FakeDevice::region_io_fds(std::uint32_t index) {
  if (index != kTyped) return {};
  return {{0, 8, event.get(), 0, 0}, {64, 4, event.get(), 1, 17}};
}

std::errc FakeDevice::region_read(std::uint32_t region, std::uint64_t offset,
                                  std::span<std::byte> to) {
  if (region == kPlain)
    std::copy_n(memory.begin() + static_cast<long>(offset), to.size(), to.begin());
  return take_error();
}

std::errc FakeDevice::region_write(std::uint32_t region, std::uint64_t offset,
                                   std::span<const std::byte> from) {
  if (const std::errc error = take_error(); error != std::errc{}) return error;
  writes.emplace_back(offset, from.size());
  if (region == kPlain) std::ranges::copy(from, memory.begin() + static_cast<long>(offset));
  return {};
}

std::errc FakeDevice::set_irqs(SetIrqsRequest request) {
  irq_flags.assign(request.flags.begin(), request.flags.end());
  request.flags = {};
  irq_requests.push_back(std::move(request));
  return take_error();
}

std::errc FakeDevice::dma_map(DmaMapRequest request) {
  if (const std::errc error = take_error(); error != std::errc{}) return error;
  maps.push_back(std::move(request));
  return {};
}

std::errc FakeDevice::dma_unmap(std::uint64_t iova, std::uint64_t size) {
  unmaps.emplace_back(iova, size);
  return take_error();
}

void FakeDevice::disconnected(const std::string& reason) {
  ++disconnects;
  last_reason = reason;
  maps.clear();
  irq_requests.clear();
}

ServerTest::ServerTest(ServerLimits limits) : server(device, limits) {}

void ServerTest::SetUp() {
  reconnect();
  negotiate();
}

void ServerTest::reconnect() {
  std::array<int, 2> pair{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair.data()), 0);
  server.disconnect("test");
  server.adopt(FileDescriptor(pair[0]));
  client.reset(pair[1]);
  reader = std::make_unique<MessageReader>(max_message_size(kDefaultMaxDataTransfer));
}

void ServerTest::negotiate() {
  Body body(VersionBody{});
  ASSERT_EQ(error_of(Command::version, body.bytes()), 0);
}

void ServerTest::send_raw(std::span<const std::byte> bytes, std::span<const int> fds) {
  alignas(cmsghdr) std::array<std::byte, 2048> control{};
  iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(c), fds.data(), fds.size_bytes());
  }
  ASSERT_EQ(::sendmsg(client.get(), &message, MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
}

void ServerTest::send(Command command, std::span<const std::byte> body, std::span<const int> fds,
                      std::uint32_t flags) {
  Header header;
  header.message_id = ++next_id;
  header.command = command;
  header.message_size = static_cast<std::uint32_t>(sizeof header + body.size());
  header.flags = flags;
  std::vector<std::byte> bytes(header.message_size);
  std::memcpy(bytes.data(), &header, sizeof header);
  std::ranges::copy(body, bytes.begin() + sizeof header);
  send_raw(bytes, fds);
}

void ServerTest::pump() {
  while (server.on_readable()) {
  }
  server.on_writable();
}

std::optional<RawReply> ServerTest::receive() {
  Message message;
  for (;;) {
    switch (reader->next(message)) {
      case MessageReader::Next::message: {
        RawReply reply;
        reply.header = message.header;
        reply.body.assign(message.body.begin(), message.body.end());
        reply.fds = std::move(message.fds);
        return reply;
      }
      case MessageReader::Next::malformed:
        ADD_FAILURE() << "server sent a malformed message";
        return std::nullopt;
      case MessageReader::Next::incomplete:
        break;
    }
    if (reader->fill(client.get()) != MessageReader::Fill::data) return std::nullopt;
  }
}

RawReply ServerTest::call(Command command, std::span<const std::byte> body,
                          std::span<const int> fds) {
  send(command, body, fds);
  pump();
  auto reply = receive();
  EXPECT_TRUE(reply.has_value()) << "no reply";
  if (!reply) return {};
  EXPECT_EQ(reply->header.message_id, next_id) << "a reply echoes the id of its command";
  EXPECT_EQ(reply->header.command, command);
  EXPECT_EQ(reply->header.flags & kTypeMask, kTypeReply);
  EXPECT_FALSE(receive().has_value()) << "one reply per command";
  return std::move(*reply);
}

}  // namespace softhca::vfio_user::test
