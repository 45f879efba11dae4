// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/control/client.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <poll.h>
#include <sys/socket.h>
#include <nlohmann/json.hpp>

#include "emulator/runtime/paths.h"
#include "emulator/runtime/unix_socket.h"

namespace softhca::emulator {
namespace {

using nlohmann::json;
using runtime::Done;
using runtime::Error;
using runtime::Result;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kMaxReply = 256 * 1024 * 1024;

/// False when the time is over.
bool wait_for(int fd, short events, Clock::time_point deadline) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    pollfd poll{fd, events, 0};
    const int ready = ::poll(&poll, 1, static_cast<int>(std::min<long long>(left, 1 << 30)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return true;  // the following call reports it
  }
}

/// sendmsg() of `size` bytes, with a copy of `fd` unless it is negative.
ssize_t send_bytes(int socket, const char* bytes, std::size_t size, int fd) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  iovec vector{const_cast<char*>(bytes), size};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &fd, sizeof(fd));
  }
  return ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

Error connection_lost() {
  return Error{ECONNRESET, "the emulator closed the connection"};
}
Error timed_out() {
  return Error{ETIMEDOUT, "the emulator does not answer in time"};
}

}  // namespace

Result<ControlClient> ControlClient::connect(std::string_view fabric) {
  return connect_path(runtime::fabric_paths(fabric).control_socket);
}

Result<ControlClient> ControlClient::connect_path(const std::string& control_socket) {
  auto socket = runtime::connect_unix(control_socket, SOCK_STREAM);
  if (!socket) return socket.error();
  if (!runtime::peer_is_trusted(socket->get())) {
    return Error{EPERM, control_socket +
                            " is served by another user; set SOFTHCA_RUNTIME_DIR to a "
                            "folder of your own"};
  }
  return ControlClient(std::move(*socket));
}

Result<Done> ControlClient::send_line(const std::string& line, int fd, Deadline deadline) {
  std::size_t sent = 0;
  while (sent < line.size()) {
    const ssize_t got =
        send_bytes(socket_.get(), line.data() + sent, line.size() - sent, sent == 0 ? fd : -1);
    if (got >= 0) {
      sent += static_cast<std::size_t>(got);
    } else if (errno == EAGAIN) {
      if (!wait_for(socket_.get(), POLLOUT, deadline)) return timed_out();
    } else if (errno == EPIPE || errno == ECONNRESET) {
      return connection_lost();
    } else if (errno != EINTR) {
      return runtime::system_error(errno, "control socket");
    }
  }
  return Done{};
}

Result<std::string> ControlClient::receive_line(Deadline deadline) {
  std::size_t searched = 0;
  while (true) {
    const std::size_t end = received_.find('\n', searched);
    if (end != std::string::npos) {
      std::string line = received_.substr(0, end);
      received_.erase(0, end + 1);
      return line;
    }
    searched = received_.size();
    if (searched > kMaxReply) return Error{EMSGSIZE, "the emulator's reply is too long"};
    if (!wait_for(socket_.get(), POLLIN, deadline)) return timed_out();
    char bytes[65536];
    const ssize_t got = ::recv(socket_.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno == ECONNRESET)) return connection_lost();
    if (got < 0 && errno != EAGAIN && errno != EINTR) {
      return runtime::system_error(errno, "control socket");
    }
    if (got > 0) received_.append(bytes, static_cast<std::size_t>(got));
  }
}

Result<json> ControlClient::request(const json& command, std::chrono::milliseconds timeout) {
  return request_with_fd(command, -1, timeout);
}

Result<json> ControlClient::request_with_fd(const json& command, int fd,
                                            std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  const std::string line = command.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  if (auto sent = send_line(line, fd, deadline); !sent) return sent.error();
  auto received = receive_line(deadline);
  if (!received) return received.error();
  json reply = json::parse(*received, nullptr, false);
  if (!reply.is_object()) return Error{EPROTO, "the emulator's reply is not a JSON object"};
  if (const auto ok = reply.find("ok"); ok == reply.end() || *ok != true) {
    const auto error = reply.find("error");
    const auto code = reply.find("code");
    return Error{code != reply.end() && code->is_number_integer() ? code->get<int>() : EPROTO,
                 error != reply.end() && error->is_string() ? error->get<std::string>()
                                                            : "refused without a reason"};
  }
  return reply;
}

}  // namespace softhca::emulator
