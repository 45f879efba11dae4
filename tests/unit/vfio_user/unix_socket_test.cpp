// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/vfio-user/unix_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <thread>

#include "emulator/vfio-user/client.h"
#include "tests/unit/vfio_user/fake_device.h"

namespace softhca::vfio_user::test {
namespace {

class UnixSocket : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "vfio-user-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  std::filesystem::path folder;
};

TEST_F(UnixSocket, IsForTheUserAlone) {
  const std::string path = folder / "socket";
  auto listening = listen_unix(path);
  ASSERT_TRUE(listening.ok()) << listening.error().message;
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07077, 0U) << "no access for group and others";
  EXPECT_TRUE(connect_unix(path).ok());
}

TEST_F(UnixSocket, LongPathsWork) {
  const auto deep = folder / std::string(100, 'a') / std::string(100, 'b');
  std::filesystem::create_directories(deep);
  const std::string path = deep / "device.sock";
  auto listening = listen_unix(path);
  ASSERT_TRUE(listening.ok()) << listening.error().message;
  EXPECT_TRUE(connect_unix(path).ok());
  EXPECT_TRUE(std::filesystem::exists(path));
}

TEST_F(UnixSocket, AStaleSocketIsReplacedALiveOneIsNot) {
  const std::string path = folder / "socket";
  { ASSERT_TRUE(listen_unix(path).ok()); }
  ASSERT_TRUE(std::filesystem::exists(path)) << "the file outlives its socket";
  EXPECT_EQ(connect_unix(path).error().code, ECONNREFUSED);
  auto second = listen_unix(path);
  ASSERT_TRUE(second.ok()) << second.error().message;
  EXPECT_EQ(listen_unix(path).error().code, EADDRINUSE);
  EXPECT_TRUE(connect_unix(path).ok());
}

TEST_F(UnixSocket, AnOrdinaryFileIsNotReplaced) {
  const std::string path = folder / "file";
  ::close(::creat(path.c_str(), 0600));
  EXPECT_EQ(listen_unix(path).error().code, EADDRINUSE);
  EXPECT_TRUE(std::filesystem::is_regular_file(path));
}

TEST_F(UnixSocket, FailuresAreTyped) {
  EXPECT_EQ(connect_unix(folder / "nothing").error().code, ENOENT);
  EXPECT_EQ(connect_unix("").error().kind, ErrorKind::argument);
  EXPECT_EQ(listen_unix(folder / "no" / std::string(120, 'x')).error().code, ENOENT);
  EXPECT_EQ(listen_unix(folder / std::string(200, 'x')).error().kind, ErrorKind::argument);
}

/// A server with a listening socket and its loop in a thread.
class Reconnect : public UnixSocket {
 protected:
  void SetUp() override {
    UnixSocket::SetUp();
    path = folder / "device.sock";
    auto listening = listen_unix(path);
    ASSERT_TRUE(listening.ok());
    server.attach(std::move(*listening));
    thread = std::thread([this] {
      while (!stop) {
        const int fd = server.connection_fd() >= 0 ? server.connection_fd() : server.listen_fd();
        pollfd entry{fd, POLLIN, 0};
        if (::poll(&entry, 1, 20) > 0) server.on_readable();
      }
    });
  }
  void TearDown() override {
    stop = true;
    thread.join();
    UnixSocket::TearDown();
  }

  std::string path;
  FakeDevice device;
  Server server{device};
  std::atomic<bool> stop{false};
  std::thread thread;
};

TEST_F(Reconnect, ClientsFollowEachOtherWithoutALeak) {
  const std::size_t before = open_fds();
  for (int i = 0; i < 50; ++i) {
    auto client = Client::connect(path);
    ASSERT_TRUE(client.ok()) << client.error().message;
    ASSERT_TRUE((*client)->dma_map(0x1000, 0x1000, kDmaRead, device.region_file.get(), 0).ok());
    const int event = device.event.get();
    ASSERT_TRUE((*client)->set_irq_eventfds(kIrqMsix, 0, {&event, 1}).ok());
    ASSERT_TRUE((*client)->region_info(FakeDevice::kSparse).ok());
  }
  for (int i = 0; i < 200 && open_fds() != before; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(open_fds(), before);
}

TEST_F(Reconnect, ASecondClientIsServedWhenTheFirstIsGone) {
  auto first = Client::connect(path);
  ASSERT_TRUE(first.ok());
  ClientOptions impatient;
  impatient.timeout = std::chrono::milliseconds(100);
  EXPECT_EQ(Client::connect(path, impatient).error().kind, ErrorKind::timeout);
  EXPECT_TRUE((*first)->device_info().ok()) << "the first is not disturbed";
  first->reset();
  EXPECT_TRUE(Client::connect(path).ok());
}

}  // namespace
}  // namespace softhca::vfio_user::test
