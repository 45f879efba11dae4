// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "emulator/vfio-user/message_io.h"
#include "emulator/vfio-user/server.h"

namespace softhca::vfio_user::test {

/// Open descriptors of this process.
std::size_t open_fds();

/// A device with a register file per region, which records what it is asked.
class FakeDevice final : public ServerDevice {
 public:
  static constexpr std::uint32_t kPlain = 0;  ///< 8 KiB, read and write.
  static constexpr std::uint32_t kSparse =
      2;  ///< 16 KiB, areas [4 KiB, 8 KiB) and [12 KiB, 16 KiB) map.
  static constexpr std::uint32_t kReadOnly = 3;  ///< 256 bytes.
  static constexpr std::uint32_t kTyped = 9;     ///< 4 KiB, maps whole, type capability.
  static constexpr std::uint32_t kMsixCount = 32;

  FakeDevice();
  std::vector<ServerRegion> regions() override;
  std::vector<ServerIrq> irqs() override;
  std::vector<ServerIoEventFd> region_io_fds(std::uint32_t index) override;
  std::errc region_read(std::uint32_t region, std::uint64_t offset,
                        std::span<std::byte> to) override;
  std::errc region_write(std::uint32_t region, std::uint64_t offset,
                         std::span<const std::byte> from) override;
  std::errc set_irqs(SetIrqsRequest request) override;
  std::errc dma_map(DmaMapRequest request) override;
  std::errc dma_unmap(std::uint64_t iova, std::uint64_t size) override;
  void dma_unmap_all() override { ++unmap_alls; }
  void reset() override { ++resets; }
  void disconnected(const std::string& reason) override;

  std::vector<std::byte> memory;  ///< Of kPlain.
  std::vector<std::pair<std::uint64_t, std::size_t>> writes;
  std::vector<SetIrqsRequest> irq_requests;
  std::vector<std::uint8_t> irq_flags;  ///< Of the last request.
  std::vector<DmaMapRequest> maps;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> unmaps;
  std::errc next_error{};  ///< Returned by the next call that can fail.
  int unmap_alls = 0;
  int resets = 0;
  int disconnects = 0;
  std::string last_reason;
  FileDescriptor region_file;
  FileDescriptor event;

 private:
  std::errc take_error() { return std::exchange(next_error, {}); }
};

struct RawReply {
  Header header;
  std::vector<std::byte> body;
  std::vector<FileDescriptor> fds;

  int error() const {
    return (header.flags & kFlagError) != 0 ? static_cast<int>(header.error) : 0;
  }
  template <typename T>
  T at(std::size_t offset) const {
    T value{};
    EXPECT_LE(offset + sizeof value, body.size());
    if (offset + sizeof value <= body.size())
      std::memcpy(&value, body.data() + offset, sizeof value);
    return value;
  }
};

/// A body made of wire structures and bytes.
class Body {
 public:
  template <typename... Parts>
  explicit Body(const Parts&... parts) {
    (append(parts), ...);
  }
  template <typename T>
  Body& append(const T& part) {
    const auto bytes = wire_bytes(part);
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  Body& fill(std::size_t count, std::uint8_t value = 0) {
    bytes_.insert(bytes_.end(), count, std::byte{value});
    return *this;
  }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

/// A server on one end of a socket pair and a bare socket on the other, in one thread.
class ServerTest : public ::testing::Test {
 protected:
  explicit ServerTest(ServerLimits limits = {});
  void SetUp() override;

  /// Puts a fresh connection in place, before negotiation.
  void reconnect();
  void negotiate();
  /// Sends raw bytes as they are, in one go.
  void send_raw(std::span<const std::byte> bytes, std::span<const int> fds = {});
  void send(Command command, std::span<const std::byte> body, std::span<const int> fds = {},
            std::uint32_t flags = kTypeCommand);
  /// Lets the server work until it has read all that was sent.
  void pump();
  /// Next message from the server, if there is one.
  std::optional<RawReply> receive();
  /// send, pump, receive; checks that the reply belongs to the command.
  RawReply call(Command command, std::span<const std::byte> body, std::span<const int> fds = {});
  /// The errno that the server answers.
  int error_of(Command command, std::span<const std::byte> body, std::span<const int> fds = {}) {
    return call(command, body, fds).error();
  }
  bool connected() const { return server.connection_fd() >= 0; }

  FakeDevice device;
  Server server;
  FileDescriptor client;
  std::unique_ptr<MessageReader> reader;
  std::uint16_t next_id = 100;
};

}  // namespace softhca::vfio_user::test
