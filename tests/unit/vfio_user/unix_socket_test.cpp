// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/vfio-user/unix_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
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

TEST_F(Reconnect, OtherUsersAreHungUpOn) {
  constexpr uid_t kOther = 65534;
  if (::geteuid() != 0) GTEST_SKIP() << "only root can play another user";
  // As if somebody had opened it up.
  ASSERT_EQ(::chmod(folder.c_str(), 0755), 0);
  ASSERT_EQ(::chmod(path.c_str(), 0666), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setresuid(kOther, kOther, kOther) != 0) ::_exit(2);
    const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
    if (::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) ::_exit(3);
    char byte = 0;
    ::_exit(::read(socket, &byte, 1) == 0 ? 0 : 4);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "no other user in this namespace";
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(Client::connect(path).ok()) << "the next one is served";
}

}  // namespace
}  // namespace softhca::vfio_user::test
