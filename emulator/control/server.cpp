// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/control/server.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <system_error>

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include "emulator/runtime/unix_socket.h"

namespace softhca::emulator {
namespace {

using nlohmann::json;
using runtime::UniqueFd;
using ConnectionId = ControlServer::ConnectionId;

constexpr ConnectionId kListening = 0;
constexpr std::size_t kMaxFds = 4;  // per connection and not yet taken by a request
constexpr int kLinesPerTurn = 16;   // of one connection, before the others have theirs
constexpr int kEventsPerTurn = 16;

std::string as_line(const json& object) {
  return object.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

struct Connection {
  UniqueFd socket;
  std::string received;
  std::size_t searched = 0;  // bytes of `received` known to hold no newline
  std::string unsent;
  std::vector<UniqueFd> descriptors;
  std::uint64_t last_use = 0;
  bool kept = false;
  bool ended = false;    // the client sends no more
  bool closing = false;  // broke the rules: goes when `unsent` is out
  bool more = false;     // complete lines are left in `received`
};

/// Appends what the socket holds (bounded). False at end of file or error.
bool receive(Connection& connection) {
  std::array<char, 16384> bytes;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMaxFds)> control;
  iovec vector{bytes.data(), bytes.size()};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t got = ::recvmsg(connection.socket.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      UniqueFd owned(fd);
      if (connection.descriptors.size() < kMaxFds)
        connection.descriptors.push_back(std::move(owned));
    }
  }
  connection.received.append(bytes.data(), static_cast<std::size_t>(got));
  return got > 0;
}

/// Sends what the socket takes. False if the connection is broken.
bool send_unsent(Connection& connection) {
  while (!connection.unsent.empty()) {
    const ssize_t sent = ::send(connection.socket.get(), connection.unsent.data(),
                                connection.unsent.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) return errno == EAGAIN || errno == EINTR;
    connection.unsent.erase(0, static_cast<std::size_t>(sent));
  }
  return true;
}

}  // namespace

json refusal(int code, const std::string& message) {
  return json{{"ok", false}, {"error", message}, {"code", code}};
}

struct ControlServer::Impl {
  UniqueFd listening;
  UniqueFd epoll;
  Handler handler;
  Closed closed;
  std::map<ConnectionId, Connection> connections;
  ConnectionId next_id = kListening + 1;
  std::uint64_t uses = 0;

  void watch(int operation, int fd, ConnectionId id, std::uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = id;
    if (::epoll_ctl(epoll.get(), operation, fd, &event) != 0) {
      throw std::system_error(errno, std::generic_category(), "epoll_ctl");
    }
  }

  void close(ConnectionId id) {
    connections.erase(id);  // the descriptor leaves the epoll set with its last copy
    if (closed) closed(id);
  }

  void make_room() {
    auto quietest = connections.end();
    for (auto entry = connections.begin(); entry != connections.end(); ++entry) {
      if (entry->second.kept) continue;
      if (quietest == connections.end() || entry->second.last_use < quietest->second.last_use) {
        quietest = entry;
      }
    }
    if (quietest != connections.end()) close(quietest->first);
  }

  void accept_one() {
    UniqueFd socket(::accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket && (errno == EMFILE || errno == ENFILE)) {
      // The waiting connection keeps the listener readable: give up a quiet one instead of
      // spinning.
      make_room();
      return;
    }
    if (!socket || !runtime::peer_is_trusted(socket.get())) return;
    if (connections.size() >= kMaxConnections) make_room();
    if (connections.size() >= kMaxConnections) return;
    const ConnectionId id = next_id++;
    Connection& connection = connections[id];
    connection.last_use = ++uses;
    connection.socket = std::move(socket);
    watch(EPOLL_CTL_ADD, connection.socket.get(), id, EPOLLIN);
  }

  json answer(ConnectionId id, Connection& connection, std::string_view line) {
    const json object = json::parse(line, nullptr, false);
    // The parser takes a zero byte for the end.
    const bool has_zero = line.find('\0') != std::string_view::npos;
    if (has_zero || object.is_discarded() || !object.is_object()) {
      return refusal(EINVAL, "expected one JSON object per line");
    }
    try {
      return handler(Request{id, object, connection.descriptors});
    } catch (const json::exception& error) {
      return refusal(EINVAL, std::string("malformed request: ") + error.what());
    }
  }

  /// Answers complete lines. The connection stays where it is: handlers never close connections.
  void serve_lines(ConnectionId id, Connection& connection) {
    connection.more = false;
    std::size_t begin = 0;
    for (int lines = 0; !connection.closing; ++lines) {
      const std::size_t end = connection.received.find('\n', std::max(begin, connection.searched));
      if (end == std::string::npos) {
        connection.searched = connection.received.size();
        break;
      }
      if (lines == kLinesPerTurn) {
        connection.more = true;
        break;
      }
      const std::string line = connection.received.substr(begin, end - begin);
      begin = end + 1;
      connection.unsent += as_line(answer(id, connection, line));
      connection.descriptors.clear();
      if (connection.unsent.size() > kMaxUnsent) connection.closing = true;
    }
    connection.received.erase(0, begin);
    connection.searched -= std::min(begin, connection.searched);
    if (!connection.more && connection.received.size() > kMaxLine) {
      connection.unsent += as_line(refusal(EMSGSIZE, "line too long"));
      connection.closing = true;
    }
  }

  void serve(ConnectionId id, std::uint32_t events) {
    const auto entry = connections.find(id);
    if (entry == connections.end()) return;
    Connection& connection = entry->second;
    if (connection.unsent.empty()) {
      const bool readable = (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0;
      if (readable && !connection.more && !connection.ended) {
        connection.ended = !receive(connection);
        connection.last_use = ++uses;
      }
      serve_lines(id, connection);
    }
    const bool alive = send_unsent(connection);
    const bool last = connection.closing || (connection.ended && !connection.more);
    if (!alive || (last && connection.unsent.empty())) {
      close(id);
      return;
    }
    // While a reply waits for its reader nothing more is read: that bounds what one client can pile
    // up. After the end of its input a connection would be readable for ever.
    const std::uint32_t input = connection.ended ? 0U : std::uint32_t{EPOLLIN};
    watch(EPOLL_CTL_MOD, connection.socket.get(), id,
          connection.unsent.empty() ? input : std::uint32_t{EPOLLOUT});
  }
};

ControlServer::ControlServer(UniqueFd listening, Handler handler, Closed closed)
    : impl_(std::make_unique<Impl>()) {
  impl_->listening = std::move(listening);
  impl_->handler = std::move(handler);
  impl_->closed = std::move(closed);
  impl_->epoll.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!impl_->epoll) throw std::system_error(errno, std::generic_category(), "epoll_create1");
  impl_->watch(EPOLL_CTL_ADD, impl_->listening.get(), kListening, EPOLLIN);
}

ControlServer::~ControlServer() = default;

int ControlServer::poll_fd() const {
  return impl_->epoll.get();
}

bool ControlServer::on_event() {
  bool more = false;
  for (auto entry = impl_->connections.begin(); entry != impl_->connections.end();) {
    const auto [id, waiting] = std::pair(entry->first, entry->second.more);
    ++entry;
    if (waiting) impl_->serve(id, 0);
  }
  std::array<epoll_event, kEventsPerTurn> events;
  const int count = ::epoll_wait(impl_->epoll.get(), events.data(), kEventsPerTurn, 0);
  for (int i = 0; i < count; ++i) {
    if (events[i].data.u64 == kListening) {
      impl_->accept_one();
    } else {
      impl_->serve(events[i].data.u64, events[i].events);
    }
  }
  for (const auto& [id, connection] : impl_->connections) {
    more |= connection.more && connection.unsent.empty();
  }
  return more || count == kEventsPerTurn;
}

void ControlServer::keep(ConnectionId connection) {
  const auto entry = impl_->connections.find(connection);
  if (entry != impl_->connections.end()) entry->second.kept = true;
}

std::size_t ControlServer::connections() const {
  return impl_->connections.size();
}

}  // namespace softhca::emulator
