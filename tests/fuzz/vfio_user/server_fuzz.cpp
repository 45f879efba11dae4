// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// A client's byte stream against the vfio-user server. The input is a sequence of messages in a
// short form, so that the fuzzer spends its time behind the header checks: command, flags, length,
// body; a length byte of 255 sends the rest of the input raw. The device checks that every call it
// gets was validated.
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "emulator/vfio-user/server.h"

namespace softhca::vfio_user {
namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

class CheckingDevice final : public ServerDevice {
 public:
  std::vector<ServerRegion> regions() override {
    std::vector<ServerRegion> regions(10);
    regions[0] = {memory_.size(), true, true, -1, 0, {{1024, 1024}}, {}};
    regions[7] = {256, true, true, -1, 0, {}, {}};
    regions[9] = {64, true, false, -1, 0, {}, CapRegionType{{kCapRegionType}, 1, 2}};
    return regions;
  }
  std::vector<ServerIrq> irqs() override {
    return {{1, kIrqEventFd | kIrqMaskable},
            {0, 0},
            {64, kIrqEventFd},
            {1, kIrqEventFd},
            {1, kIrqEventFd}};
  }
  std::vector<ServerIoEventFd> region_io_fds(std::uint32_t index) override {
    require(index < 10);
    return {};
  }
  std::errc region_read(std::uint32_t region, std::uint64_t offset,
                        std::span<std::byte> to) override {
    check(region, offset, to.size());
    std::memcpy(to.data(), memory_.data() + offset, to.size());
    return {};
  }
  std::errc region_write(std::uint32_t region, std::uint64_t offset,
                         std::span<const std::byte> from) override {
    require(region != 9);
    check(region, offset, from.size());
    std::memcpy(memory_.data() + offset, from.data(), from.size());
    return {};
  }
  std::errc set_irqs(SetIrqsRequest request) override {
    constexpr std::array<std::uint32_t, 5> kCounts{1, 0, 64, 1, 1};
    require(request.index < kCounts.size());
    require(std::uint64_t{request.start} + request.count <= kCounts[request.index]);
    require(request.data != kIrqSetDataBool || request.flags.size() == request.count);
    require(request.eventfds.empty());
    unsigned sum = 0;
    for (const std::uint8_t flag : request.flags) sum += flag;
    return sum == 1 ? std::errc::invalid_argument : std::errc{};
  }
  std::errc dma_map(DmaMapRequest request) override {
    require(request.size != 0 && request.iova + request.size > request.iova);
    require(request.offset + request.size >= request.offset);
    require(request.readable || request.writable);
    if (server != nullptr) {
      (void)server->dma_read(request.iova, 8, [](std::errc, std::span<const std::byte>) {});
      (void)server->dma_write(request.iova, std::span(memory_).first(16),
                              [](std::errc, std::span<const std::byte>) {});
    }
    return {};
  }
  std::errc dma_unmap(std::uint64_t iova, std::uint64_t size) override {
    require(size != 0 && iova + size > iova);
    return size % 2 == 0 ? std::errc{} : std::errc::no_such_file_or_directory;
  }
  void dma_unmap_all() override {}
  void reset() override {
    if (server != nullptr && ++resets_ % 4 == 0) server->disconnect("reset");
  }
  void disconnected(const std::string&) override {}

  Server* server = nullptr;

 private:
  static void check(std::uint32_t region, std::uint64_t offset, std::size_t size) {
    const std::uint64_t limit = region == 0 ? 4096 : region == 7 ? 256 : region == 9 ? 64 : 0;
    require(size != 0 && offset < limit && size <= limit - offset);
  }
  std::array<std::byte, 4096> memory_{};
  unsigned resets_ = 0;
};

void send_all(int socket, std::span<const std::byte> bytes) {
  (void)::send(socket, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

std::vector<std::byte> message(Command command, std::uint32_t flags,
                               std::span<const std::byte> body) {
  Header header;
  header.command = command;
  header.flags = flags;
  header.message_size = static_cast<std::uint32_t>(sizeof header + body.size());
  std::vector<std::byte> bytes(header.message_size);
  std::memcpy(bytes.data(), &header, sizeof header);
  if (!body.empty()) std::memcpy(bytes.data() + sizeof header, body.data(), body.size());
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::array<int, 2> pair{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair.data()) != 0)
    return 0;
  const FileDescriptor client(pair[1]);
  CheckingDevice device;
  ServerLimits limits;
  limits.max_output = 64 << 10;
  limits.max_data_transfer = 8192;
  Server server(device, limits);
  device.server = &server;
  server.adopt(FileDescriptor(pair[0]));
  std::span<const std::byte> input(reinterpret_cast<const std::byte*>(data), size);
  const bool negotiates = (std::to_integer<unsigned>(input[0]) & 1) != 0;
  input = input.subspan(1);
  if (negotiates) {
    const VersionBody version;
    send_all(client.get(), message(Command::version, 0, std::as_bytes(std::span(&version, 1))));
  }
  while (input.size() >= 3 && server.connection_fd() >= 0) {
    const auto command = static_cast<Command>(input[0]);
    const std::uint32_t flags = std::to_integer<std::uint32_t>(input[1]);
    const std::size_t length = std::to_integer<std::size_t>(input[2]);
    input = input.subspan(3);
    if (length == 255) {
      send_all(client.get(), input);
      input = {};
    } else {
      const auto body = input.first(std::min(length, input.size()));
      send_all(client.get(), message(command, flags, body));
      input = input.subspan(body.size());
    }
    server.on_readable();
  }
  while (server.on_readable()) {
  }
  server.on_writable();
  device.server = nullptr;
  return 0;
}

}  // namespace softhca::vfio_user
