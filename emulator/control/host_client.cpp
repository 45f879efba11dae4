// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/control/host_client.h"

#include <cerrno>
#include <cstring>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "emulator/runtime/unix_socket.h"

namespace softhca::emulator {
namespace {

using runtime::Done;
using runtime::Error;
using runtime::Result;
using runtime::UniqueFd;

constexpr int kReplyTimeoutMs = 5000;

struct Request {
  shim::RequestHeader header;
  shim::ControlBody body;
};
static_assert(sizeof(Request) == sizeof(shim::RequestHeader) + sizeof(shim::ControlBody));

struct Reply {
  shim::ReplyHeader header;
  shim::ControlReply body;
};
static_assert(sizeof(Reply) == sizeof(shim::ReplyHeader) + sizeof(shim::ControlReply));

Result<Done> send_request(int socket, const Request& request, int reply_fd) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  iovec vector{const_cast<Request*>(&request), sizeof(request)};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &reply_fd, sizeof(reply_fd));
  if (::sendmsg(socket, &message, MSG_NOSIGNAL) < 0) {
    return runtime::system_error(errno == EPIPE ? ECONNRESET : errno, "host daemon");
  }
  return Done{};
}

}  // namespace

Result<shim::ControlReply> host_control(const std::string& kernel_socket,
                                        shim::ControlAction action) {
  auto socket = runtime::connect_unix(kernel_socket, SOCK_SEQPACKET);
  if (!socket) return socket.error();
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return runtime::system_error(errno, "socketpair");
  }
  const UniqueFd own_end(ends[0]);
  UniqueFd daemon_end(ends[1]);

  Request request{};
  request.header.type = shim::RequestType::control;
  request.header.pid = ::getpid();
  request.header.body_length = sizeof(request.body);
  request.body.action = action;
  if (auto sent = send_request(socket->get(), request, daemon_end.get()); !sent)
    return sent.error();
  daemon_end.reset();

  pollfd poll{own_end.get(), POLLIN, 0};
  if (::poll(&poll, 1, kReplyTimeoutMs) <= 0) {
    return Error{ETIMEDOUT, "the host's daemon does not answer in time"};
  }
  Reply reply{};
  const ssize_t got = ::recv(own_end.get(), &reply, sizeof(reply), MSG_DONTWAIT);
  if (got == 0 || (got < 0 && errno == ECONNRESET)) {
    return Error{ECONNRESET, "the host's daemon closed the connection"};
  }
  if (got < static_cast<ssize_t>(sizeof(reply.header)) || reply.header.magic != shim::kMagic) {
    return Error{EPROTO, "the host's daemon speaks another protocol version"};
  }
  if (reply.header.error != 0) return runtime::system_error(reply.header.error, "host daemon");
  if (got != static_cast<ssize_t>(sizeof(reply))) {
    return Error{EPROTO, "the host's daemon speaks another protocol version"};
  }
  return reply.body;
}

}  // namespace softhca::emulator
