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
constexpr char kOtherVersion[] = "the host's daemon speaks another protocol version";

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

/// Sends `request` with a descriptor to answer on, and waits for the answer: its length, with a
/// header that is this protocol's and carries no error.
Result<std::size_t> exchange(int socket, const void* request, std::size_t request_length,
                             void* reply, std::size_t reply_length) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return runtime::system_error(errno, "socketpair");
  }
  const UniqueFd own_end(ends[0]);
  UniqueFd daemon_end(ends[1]);

  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  iovec vector{const_cast<void*>(request), request_length};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  const int reply_fd = daemon_end.get();
  std::memcpy(CMSG_DATA(rights), &reply_fd, sizeof(reply_fd));
  if (::sendmsg(socket, &message, MSG_NOSIGNAL) < 0) {
    return runtime::system_error(errno == EPIPE ? ECONNRESET : errno, "host daemon");
  }
  daemon_end.reset();

  pollfd readable{own_end.get(), POLLIN, 0};
  if (::poll(&readable, 1, kReplyTimeoutMs) <= 0) {
    return Error{ETIMEDOUT, "the host's daemon does not answer in time"};
  }
  const ssize_t got = ::recv(own_end.get(), reply, reply_length, MSG_DONTWAIT);
  if (got == 0 || (got < 0 && errno == ECONNRESET)) {
    return Error{ECONNRESET, "the host's daemon closed the connection"};
  }
  shim::ReplyHeader header;
  if (got < static_cast<ssize_t>(sizeof(header))) return Error{EPROTO, kOtherVersion};
  std::memcpy(&header, reply, sizeof(header));
  if (header.magic != shim::kMagic) return Error{EPROTO, kOtherVersion};
  if (header.error != 0) return runtime::system_error(header.error, "host daemon");
  return static_cast<std::size_t>(got);
}

}  // namespace

Result<shim::ControlReply> host_control(const std::string& kernel_socket,
                                        shim::ControlAction action) {
  auto socket = runtime::connect_unix(kernel_socket, SOCK_SEQPACKET);
  if (!socket) return socket.error();
  Request request{};
  request.header.type = shim::RequestType::control;
  request.header.pid = ::getpid();
  request.header.body_length = sizeof(request.body);
  request.body.action = action;
  Reply reply{};
  auto got = exchange(socket->get(), &request, sizeof(request), &reply, sizeof(reply));
  if (!got) return got.error();
  if (*got != sizeof(reply)) return Error{EPROTO, kOtherVersion};
  return reply.body;
}

Result<Done> take_lease(int socket) {
  shim::RequestHeader request;
  request.type = shim::RequestType::lease;
  request.pid = ::getpid();
  shim::ReplyHeader reply;
  auto got = exchange(socket, &request, sizeof(request), &reply, sizeof(reply));
  if (!got) return got.error();
  return Done{};
}

}  // namespace softhca::emulator
