// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/host/server/server.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "emulator/runtime/unix_socket.h"
#include "tests/unit/host/verbs_host.h"

namespace softhca::shim::test {
namespace {

class Owner final : public ServerOwner {
 public:
  void refresh_tree() override { ++refreshes; }
  void control(ControlAction) override {}
  bool persistent() const override { return false; }
  void users_changed() override { ++changes; }
  int refreshes = 0;
  int changes = 0;
};

class ServerTest : public VerbsHost {
 protected:
  ServerTest() : server_(loop_, *device_, owner_) {
    char name[] = "/tmp/softhca-server-XXXXXX";
    folder_ = ::mkdtemp(name);
    EXPECT_TRUE(server_.listen(folder_ + "/kernel.sock"));
  }
  ~ServerTest() override {
    server_.close_all();
    server_.stop_listening();
    std::filesystem::remove_all(folder_);
  }

  runtime::UniqueFd connect() {
    return std::move(*runtime::connect_unix(folder_ + "/kernel.sock", SOCK_SEQPACKET));
  }
  void turn(int rounds = 4) {
    for (int i = 0; i < rounds; ++i) loop_.run_once(std::chrono::milliseconds(5));
  }
  /// Sends and waits for the answer; errno of the reply, -1 if none came.
  int request(int socket, RequestHeader header, std::span<const std::byte> body,
              const std::vector<int>& fds = {}, bool true_length = true) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return -1;
    const runtime::UniqueFd mine(ends[0]);
    runtime::UniqueFd theirs(ends[1]);
    if (true_length) header.body_length = static_cast<std::uint32_t>(body.size());
    std::vector<int> all = {theirs.get()};
    all.insert(all.end(), fds.begin(), fds.end());
    send(socket, header, body, all);
    theirs.reset();
    turn();
    ReplyHeader reply;
    if (::recv(mine.get(), &reply, sizeof(reply), MSG_DONTWAIT | MSG_TRUNC) < 16) return -1;
    return reply.error;
  }
  static void send(int socket, const RequestHeader& header, std::span<const std::byte> body,
                   const std::vector<int>& fds) {
    iovec pieces[2] = {{const_cast<RequestHeader*>(&header), sizeof(header)},
                       {const_cast<std::byte*>(body.data()), body.size()}};
    std::vector<std::byte> control(CMSG_SPACE(sizeof(int) * fds.size()));
    msghdr message{};
    message.msg_iov = pieces;
    message.msg_iovlen = 2;
    if (!fds.empty()) {
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      cmsghdr* const part = CMSG_FIRSTHDR(&message);
      part->cmsg_level = SOL_SOCKET;
      part->cmsg_type = SCM_RIGHTS;
      part->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
      std::memcpy(CMSG_DATA(part), fds.data(), sizeof(int) * fds.size());
    }
    ::sendmsg(socket, &message, MSG_NOSIGNAL);
  }
  int hello(int socket) {
    const runtime::UniqueFd mem(::open("/proc/self/mem", O_RDWR | O_CLOEXEC));
    const HelloBody body;
    return request(socket, header(RequestType::hello), std::as_bytes(std::span(&body, 1)),
                   {mem.get()});
  }
  static RequestHeader header(RequestType type) {
    RequestHeader header;
    header.type = type;
    return header;
  }

  Owner owner_;
  Server server_;
  std::string folder_;
};

TEST_F(ServerTest, CountsContextsAndLeasesByTheirConnections) {
  runtime::UniqueFd context = connect();
  runtime::UniqueFd lease = connect();
  EXPECT_EQ(hello(context.get()), 0);
  EXPECT_EQ(request(lease.get(), header(RequestType::lease), {}), 0);
  EXPECT_EQ(server_.contexts(), 1U);
  EXPECT_EQ(server_.leases(), 1U);
  EXPECT_EQ(request(lease.get(), header(RequestType::lease), {}), EINVAL);
  context.reset();
  lease.reset();
  turn();
  EXPECT_EQ(server_.contexts(), 0U);
  EXPECT_EQ(server_.leases(), 0U);
  EXPECT_EQ(owner_.changes, 4);
}

TEST_F(ServerTest, AContextLivesUntilItsLastDescriptorCloses) {
  runtime::UniqueFd first = connect();
  ASSERT_EQ(hello(first.get()), 0);
  runtime::UniqueFd copy(::dup(first.get()));
  first.reset();
  turn();
  EXPECT_EQ(server_.contexts(), 1U);
  copy.reset();
  turn();
  EXPECT_EQ(server_.contexts(), 0U);
}

TEST_F(ServerTest, MalformedPacketsAreAnsweredWithAnErrno) {
  const runtime::UniqueFd socket = connect();
  RequestHeader bad = header(RequestType::hello);
  bad.magic = 1;
  EXPECT_EQ(request(socket.get(), bad, {}), EINVAL);
  bad = header(RequestType::hello);
  bad.version = 99;
  EXPECT_EQ(request(socket.get(), bad, {}), EPROTO);
  bad = header(RequestType::ioctl);
  bad.body_length = 1000;
  EXPECT_EQ(request(socket.get(), bad, {}, {}, false), EINVAL) << "half a message";
  EXPECT_EQ(request(socket.get(), header(RequestType::ioctl), {}), EINVAL) << "before hello";
  EXPECT_EQ(request(socket.get(), header(static_cast<RequestType>(4711)), {}), EINVAL);
  EXPECT_EQ(request(socket.get(), header(RequestType::hello), {}), EINVAL) << "no body, no memory";
  EXPECT_EQ(hello(socket.get()), 0) << "the connection still works";
}

TEST_F(ServerTest, TooLongPacketsAndTooManyDescriptorsAreRefused) {
  const runtime::UniqueFd socket = connect();
  int size = 1 << 20;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
  const std::vector<std::byte> long_body(kMaxPacket + 100);
  EXPECT_EQ(request(socket.get(), header(RequestType::ioctl), long_body), EMSGSIZE);
  EXPECT_EQ(request(socket.get(), header(RequestType::ioctl), {}, std::vector<int>(30, 0)), E2BIG);
  EXPECT_EQ(hello(socket.get()), 0);
}

TEST_F(ServerTest, OutOfDescriptorsItWaitsInsteadOfSpinning) {
  const runtime::UniqueFd socket = connect();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(runtime::UniqueFd(::dup(0)).get());
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  loop_.run_once(std::chrono::milliseconds(1000));
  const auto start = std::chrono::steady_clock::now();
  loop_.run_once(std::chrono::milliseconds(30));
  const auto waited = std::chrono::steady_clock::now() - start;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_GE(waited, std::chrono::milliseconds(30));
  turn(40);
  EXPECT_EQ(hello(socket.get()), 0) << "the connection was not lost";
}

TEST_F(ServerTest, APacketWithoutReplyDescriptorHurtsNobody) {
  const runtime::UniqueFd socket = connect();
  send(socket.get(), header(RequestType::refresh), {}, {});
  turn();
  EXPECT_EQ(owner_.refreshes, 1);
  EXPECT_EQ(hello(socket.get()), 0);
}

TEST_F(ServerTest, AReplyThatNobodyReadsDoesNotHoldUpOthers) {
  const runtime::UniqueFd socket = connect();
  ASSERT_EQ(hello(socket.get()), 0);
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  const runtime::UniqueFd mine(ends[0]);
  const runtime::UniqueFd theirs(ends[1]);
  for (int i = 0; i < 3000; ++i) {
    send(socket.get(), header(RequestType::ioctl), {}, {theirs.get()});
    if (i % 8 == 0) turn(1);
  }
  turn(300);
  const runtime::UniqueFd other = connect();
  EXPECT_EQ(hello(other.get()), 0);
}

}  // namespace
}  // namespace softhca::shim::test
