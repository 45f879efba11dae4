// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/control/server.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include "emulator/control/client.h"
#include "emulator/runtime/unix_socket.h"
#include "tests/unit/engine/runtime_folder.h"

namespace softhca::emulator {
namespace {

using nlohmann::json;
using runtime::UniqueFd;
using test::RuntimeFolder;

/// A server in a thread of its own that sends back what it gets.
class ControlServerTest : public testing::Test {
 protected:
  ControlServerTest() : path_(folder_.path() + "/control.sock") {
    auto listening = runtime::listen_unix(path_, SOCK_STREAM);
    if (!listening) throw std::runtime_error(listening.error().message);
    server_ = std::make_unique<ControlServer>(
        std::move(*listening),
        [](const ControlServer::Request& request) {
          if (request.object.contains("number")) request.object["number"].get<int>();
          const std::size_t size = request.object.value("size", 0U);
          return json{{"ok", true}, {"echo", request.object}, {"pad", std::string(size, 'x')}};
        },
        [this](ControlServer::ConnectionId) { ++closed_; });
    thread_ = std::thread([this] { run(); });
  }
  ~ControlServerTest() override {
    stop_ = true;
    thread_.join();
  }

  void run() {
    bool more = false;
    while (!stop_) {
      pollfd poll{server_->poll_fd(), POLLIN, 0};
      const int ready = ::poll(&poll, 1, more ? 0 : 20);
      if (ready > 0 || more) {
        ++turns_;
        more = server_->on_event();
      }
      connections_ = server_->connections();
    }
  }

  UniqueFd connect() {
    auto socket = runtime::connect_unix(path_, SOCK_STREAM);
    EXPECT_TRUE(socket) << socket.error().message;
    return socket ? std::move(*socket) : UniqueFd();
  }
  static void send_text(const UniqueFd& socket, std::string_view text) {
    while (!text.empty()) {
      const ssize_t sent = ::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL);
      if (sent < 0) return;
      text.remove_prefix(static_cast<std::size_t>(sent));
    }
  }
  /// One reply line, or an empty object when the server closes instead.
  static json receive(const UniqueFd& socket) {
    std::string line;
    std::array<char, 65536> bytes;
    while (true) {
      const ssize_t seen = ::recv(socket.get(), bytes.data(), bytes.size(), MSG_PEEK);
      if (seen <= 0) break;
      const std::string_view text(bytes.data(), static_cast<std::size_t>(seen));
      const std::size_t used = std::min(text.find('\n'), text.size() - 1) + 1;
      if (::recv(socket.get(), bytes.data(), used, 0) != static_cast<ssize_t>(used)) break;
      line += text.substr(0, used);
      if (line.back() == '\n') return json::parse(line, nullptr, false);
    }
    return json::object();
  }
  /// The server still answers an honest client.
  void expect_service() {
    auto client = ControlClient::connect_path(path_);
    ASSERT_TRUE(client) << client.error().message;
    const auto reply = client->request(json{{"command", "x"}}, std::chrono::seconds(60));
    EXPECT_TRUE(reply) << reply.error().message;
  }
  /// Until the server's thread has seen `count` connections.
  void await_connections(std::size_t count) {
    for (int i = 0; i < 500 && connections_ != count; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_EQ(connections_, count);
  }

  RuntimeFolder folder_;
  std::string path_;
  std::unique_ptr<ControlServer> server_;
  std::atomic<bool> stop_ = false;
  std::atomic<std::size_t> connections_ = 0;
  std::atomic<int> closed_ = 0;
  std::atomic<std::uint64_t> turns_ = 0;
  std::thread thread_;
};

TEST_F(ControlServerTest, answers_each_line_with_one_line_in_order) {
  const UniqueFd socket = connect();
  std::string text;
  for (int i = 0; i < 100; ++i) text += json{{"number", i}}.dump() + "\n";
  send_text(socket, text);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(receive(socket)["echo"]["number"], i);
}

TEST_F(ControlServerTest, takes_a_line_in_pieces) {
  const UniqueFd socket = connect();
  for (const char c : std::string("{\"number\": 7}\n")) {
    send_text(socket, std::string_view(&c, 1));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(receive(socket)["echo"]["number"], 7);
}

TEST_F(ControlServerTest, refuses_what_is_not_an_object_and_goes_on) {
  const UniqueFd socket = connect();
  for (const char* line : {"", "garbage", "[1]", "7", "{\"a\":", "\xff\xfe{}", "null"}) {
    send_text(socket, std::string(line) + "\n");
    const json reply = receive(socket);
    EXPECT_EQ(reply["ok"], false) << line;
    EXPECT_EQ(reply["code"], EINVAL) << line;
  }
  send_text(socket, std::string("{\"number\":1}\0\n", 14));
  EXPECT_EQ(receive(socket)["ok"], false) << "a zero byte behind the object";
  send_text(socket, "{\"number\": 1}\n");
  EXPECT_EQ(receive(socket)["ok"], true);
}

TEST_F(ControlServerTest, refuses_deep_nesting_and_wrong_types) {
  const UniqueFd socket = connect();
  send_text(socket, std::string(60000, '[') + "\n");
  EXPECT_EQ(receive(socket)["ok"], false);
  send_text(socket, "{\"number\": \"text\"}\n");
  const json reply = receive(socket);
  EXPECT_EQ(reply["ok"], false);
  EXPECT_EQ(reply["code"], EINVAL);
}

TEST_F(ControlServerTest, gives_up_on_a_line_without_end) {
  const UniqueFd socket = connect();
  send_text(socket, std::string(4 * ControlServer::kMaxLine, 'x'));
  EXPECT_EQ(receive(socket).value("code", 0), EMSGSIZE);
  EXPECT_EQ(receive(socket), json::object()) << "the connection is closed";
  await_connections(0);
  expect_service();
}

TEST_F(ControlServerTest, answers_lines_that_came_before_the_end_of_input) {
  const UniqueFd socket = connect();
  std::string text;
  for (int i = 0; i < 40; ++i) text += json{{"number", i}}.dump() + "\n";
  send_text(socket, text + "{\"half");
  ::shutdown(socket.get(), SHUT_WR);
  for (int i = 0; i < 40; ++i) EXPECT_EQ(receive(socket)["echo"]["number"], i);
  EXPECT_EQ(receive(socket), json::object());
  await_connections(0);
}

TEST_F(ControlServerTest, serves_others_while_one_does_not_read_its_replies) {
  const UniqueFd lazy = connect();
  std::string text;
  for (int i = 0; i < 8; ++i) text += json{{"size", 1 << 20}}.dump() + "\n";
  send_text(lazy, text);
  expect_service();
  // Not read, but kept; and the server does not spin meanwhile.
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const std::uint64_t before = turns_;
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_LT(turns_ - before, 10U);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(receive(lazy)["pad"].get<std::string>().size(), 1U << 20);
}

TEST_F(ControlServerTest, makes_room_for_a_new_connection_among_silent_ones) {
  std::vector<UniqueFd> silent;
  for (std::size_t i = 0; i < 3 * ControlServer::kMaxConnections; ++i) silent.push_back(connect());
  expect_service();
  EXPECT_LE(connections_, ControlServer::kMaxConnections);
  silent.clear();
  await_connections(0);
}

TEST_F(ControlServerTest, closes_descriptors_that_nobody_took) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const UniqueFd read_end(ends[0]);
  {
    const UniqueFd write_end(ends[1]);
    auto client = ControlClient::connect_path(path_);
    ASSERT_TRUE(client);
    ASSERT_TRUE(client->request_with_fd(json{{"command", "x"}}, write_end.get()));
  }
  pollfd poll{read_end.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&poll, 1, 5000), 1);
  EXPECT_NE(poll.revents & POLLHUP, 0) << "all copies of the write end are closed";
}

TEST_F(ControlServerTest, reports_connections_that_end) {
  connect();
  await_connections(0);
  for (int i = 0; i < 500 && closed_ == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(closed_, 1);
}

TEST(ControlClientTest, gives_up_on_a_server_that_does_not_answer) {
  const RuntimeFolder folder;
  auto listening = runtime::listen_unix(folder.path() + "/control.sock", SOCK_STREAM);
  ASSERT_TRUE(listening);
  auto client = ControlClient::connect_path(folder.path() + "/control.sock");
  ASSERT_TRUE(client);
  const auto reply = client->request(json{{"command", "x"}}, std::chrono::milliseconds(50));
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code, ETIMEDOUT);
}

TEST(ControlClientTest, tells_when_the_server_ends_instead_of_answering) {
  const RuntimeFolder folder;
  auto listening = runtime::listen_unix(folder.path() + "/control.sock", SOCK_STREAM);
  ASSERT_TRUE(listening);
  auto client = ControlClient::connect_path(folder.path() + "/control.sock");
  ASSERT_TRUE(client);
  listening->reset();
  const auto reply = client->request(json{{"command", "x"}});
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code, ECONNRESET);
}

}  // namespace
}  // namespace softhca::emulator
