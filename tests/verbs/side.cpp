// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/verbs/side.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

namespace softhca::verbs_check {
namespace {

constexpr int kPeerTimeoutMs = 60'000;

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

void wait_readable(int socket, const char* what) {
  require(becomes_readable(socket, std::chrono::milliseconds(kPeerTimeoutMs)), what);
}

}  // namespace

bool becomes_readable(int fd, std::chrono::milliseconds timeout) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(
        std::max(end - std::chrono::steady_clock::now(), std::chrono::steady_clock::duration{}));
    pollfd entry{fd, POLLIN, 0};
    const int ready = ::poll(&entry, 1, static_cast<int>(left.count()));
    if (ready >= 0 || errno != EINTR) return ready == 1;
  }
}

Side::~Side() {
  ::close(socket_);
}

void Side::write(const void* data, std::size_t size) {
  const auto* bytes = static_cast<const char*>(data);
  while (size != 0) {
    const ssize_t done = ::send(socket_, bytes, size, MSG_NOSIGNAL);
    require(done > 0, "the other end is gone (send)");
    bytes += done;
    size -= static_cast<std::size_t>(done);
  }
}

void Side::read(void* data, std::size_t size) {
  auto* bytes = static_cast<char*>(data);
  while (size != 0) {
    wait_readable(socket_, "the other end is silent");
    const ssize_t done = ::recv(socket_, bytes, size, 0);
    require(done > 0, "the other end is gone (receive)");
    bytes += done;
    size -= static_cast<std::size_t>(done);
  }
}

int accept_peer(std::uint16_t port) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int one = 1;
  ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  const sockaddr_in address = loopback(port);
  const bool bound =
      ::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
      ::listen(listener, 1) == 0;
  require(bound, std::string("cannot listen: ") + std::strerror(errno));
  wait_readable(listener, "no client came");
  const int socket = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  ::close(listener);
  require(socket >= 0, "accept failed");
  return socket;
}

int connect_peer(std::uint16_t port) {
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(kPeerTimeoutMs);
  const sockaddr_in address = loopback(port);
  while (std::chrono::steady_clock::now() < deadline) {
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0)
      return socket;
    ::close(socket);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  throw Failure("no server on the port");
}

}  // namespace softhca::verbs_check
