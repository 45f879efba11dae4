// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <functional>
#include <string_view>
#include <thread>

#include "emulator/vfio-user/client.h"
#include "emulator/vfio-user/version.h"
#include "tests/unit/vfio_user/fake_device.h"

namespace softhca::vfio_user::test {
namespace {

using std::chrono::milliseconds;

/// A server that answers the version properly and then does what the test says with the next
/// command.
class HostileServer : public ::testing::Test {
 protected:
  using Action = std::function<void(int socket, const Header& command)>;

  void TearDown() override {
    client.reset();
    if (thread.joinable()) thread.join();
  }
  void start(Action action, bool negotiates = true) {
    std::array<int, 2> pair{};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()), 0);
    thread = std::thread([socket = pair[0], action = std::move(action), negotiates] {
      const FileDescriptor own(socket);
      Header command;
      if (negotiates) {
        read_command(socket, command);
        const std::string version = encode_version({});
        answer(socket, command, std::as_bytes(std::span(version)));
      }
      if (read_command(socket, command)) action(socket, command);
      while (read_command(socket, command)) {
      }
    });
    ClientOptions options;
    options.timeout = milliseconds(200);
    auto result = Client::connect(FileDescriptor(pair[1]), options);
    if (result.ok()) {
      client = std::move(*result);
    } else {
      connect_error = result.error();
    }
  }
  static bool read_command(int socket, Header& header) {
    if (::recv(socket, &header, sizeof header, MSG_WAITALL) != sizeof header) return false;
    std::vector<std::byte> body(header.message_size - sizeof header);
    return body.empty() || ::recv(socket, body.data(), body.size(), MSG_WAITALL) ==
                               static_cast<ssize_t>(body.size());
  }
  static void answer(int socket, Header header, std::span<const std::byte> body,
                     std::uint32_t flags = kTypeReply) {
    header.flags = flags;
    MessageWriter writer;
    writer.send(socket, header, body);
  }
  /// The error of device_info(), after which the client must refuse to go on.
  ErrorKind broken_by(Action action) {
    start(std::move(action));
    if (!client) return connect_error.kind;
    const auto result = client->device_info();
    EXPECT_FALSE(result.ok());
    EXPECT_EQ(client->device_info().error().kind, ErrorKind::disconnected);
    return result.ok() ? ErrorKind::argument : result.error().kind;
  }

  std::unique_ptr<Client> client;
  Error connect_error;
  std::thread thread;
};

TEST_F(HostileServer, SilenceIsATimeout) {
  EXPECT_EQ(broken_by([](int, const Header&) {}), ErrorKind::timeout);
}

TEST_F(HostileServer, HalfAReplyIsATimeout) {
  EXPECT_EQ(broken_by([](int socket, const Header& command) {
              Header header = command;
              header.flags = kTypeReply;
              header.message_size = 32;
              ::send(socket, &header, sizeof header, MSG_NOSIGNAL);
            }),
            ErrorKind::timeout);
}

TEST_F(HostileServer, EndOfConnectionIsADisconnect) {
  EXPECT_EQ(broken_by([](int socket, const Header&) { ::shutdown(socket, SHUT_RDWR); }),
            ErrorKind::disconnected);
}

TEST_F(HostileServer, AbsurdSizeIsAProtocolError) {
  EXPECT_EQ(broken_by([](int socket, const Header& command) {
              Header header = command;
              header.flags = kTypeReply;
              header.message_size = 0xffffffff;
              ::send(socket, &header, sizeof header, MSG_NOSIGNAL);
            }),
            ErrorKind::protocol);
}

TEST_F(HostileServer, ForeignReplyIsAProtocolError) {
  EXPECT_EQ(broken_by([](int socket, Header command) {
              ++command.message_id;
              answer(socket, command, Body(DeviceInfoBody{}).bytes());
            }),
            ErrorKind::protocol);
}

TEST_F(HostileServer, ShortReplyIsAProtocolError) {
  EXPECT_EQ(broken_by([](int socket, const Header& command) {
              answer(socket, command, Body().fill(15).bytes());
            }),
            ErrorKind::protocol);
}

TEST_F(HostileServer, MemoryRequestsWithoutMemoryAreRefusedNotObeyed) {
  start([](int socket, const Header& command) {
    Header request;
    request.command = Command::dma_read;
    answer(socket, request, Body(DmaAccessBody{0, 64}).bytes(), kTypeCommand);
    Header reply;
    read_command(socket, reply);
    EXPECT_EQ(reply.flags, kTypeReply | kFlagError);
    EXPECT_EQ(reply.error, std::uint32_t{EINVAL});
    answer(socket, command, Body(DeviceInfoBody{}).bytes());
  });
  ASSERT_TRUE(client);
  EXPECT_TRUE(client->device_info().ok());
}

TEST_F(HostileServer, AServerThatNeverNegotiatesIsATimeout) {
  start([](int, const Header&) {}, false);
  EXPECT_FALSE(client);
  EXPECT_EQ(connect_error.kind, ErrorKind::timeout);
}

TEST_F(HostileServer, AnotherVersionIsAProtocolError) {
  start(
      [](int socket, const Header& command) {
        answer(socket, command, Body(VersionBody{0, 1}).bytes());
      },
      false);
  EXPECT_FALSE(client);
  EXPECT_EQ(connect_error.kind, ErrorKind::protocol);
}

/// Region info whose capability list is `body` behind the fixed part.
class HostileRegion : public HostileServer {
 protected:
  Result<ClientRegion> ask(RegionInfoBody fixed, Body body) {
    fixed.argsz = sizeof fixed;
    fixed.flags = kRegionRead | kRegionCaps;
    start([fixed, body](int socket, const Header& command) {
      Body whole(fixed);
      for (const std::byte b : body.bytes()) whole.append(b);
      answer(socket, command, whole.bytes());
    });
    return client->region_info(0);
  }
  static RegionInfoBody fixed(std::uint32_t cap_offset) {
    RegionInfoBody body;
    body.cap_offset = cap_offset;
    body.size = 4096;
    return body;
  }
};

TEST_F(HostileRegion, CapabilityListThatLoopsIsAProtocolError) {
  EXPECT_EQ(ask(fixed(32), Body(CapHeader{9, 1, 32})).error().kind, ErrorKind::protocol);
}
TEST_F(HostileRegion, CapabilityOutsideOfTheReplyIsAProtocolError) {
  EXPECT_EQ(ask(fixed(0xfffffff8), Body()).error().kind, ErrorKind::protocol);
}
TEST_F(HostileRegion, CapabilityInsideTheFixedPartIsAProtocolError) {
  EXPECT_EQ(ask(fixed(8), Body()).error().kind, ErrorKind::protocol);
}
TEST_F(HostileRegion, MoreAreasThanBytesIsAProtocolError) {
  CapSparseMmap cap;
  cap.nr_areas = 0x10000001;
  EXPECT_EQ(ask(fixed(32), Body(cap, MmapArea{0, 4096})).error().kind, ErrorKind::protocol);
}

}  // namespace
}  // namespace softhca::vfio_user::test
