// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/host/server/server.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "emulator/runtime/unix_socket.h"
#include "kernel-shim/host/uverbs/dispatch.h"
#include "kernel-shim/host/uverbs/mmap.h"
#include "kernel-shim/host/uverbs/wire_items.h"

namespace softhca::shim {
namespace {

/// Packets of one connection that are served before others get their turn.
constexpr int kBurst = 16;
/// Out of descriptors, for so long nobody is accepted: the waiting connection would wake the loop
/// all the time.
constexpr auto kRest = std::chrono::milliseconds(100);

template <typename T>
void answer(Reply& reply, const T& body) {
  reply.raw(std::as_bytes(std::span(&body, 1)));
}

}  // namespace

Server::Server(EventLoop& loop, IbDevice& device, ServerOwner& owner)
    : loop_(loop), device_(device), owner_(owner), ending_(loop, [this] { context_ended(); }) {}

Server::~Server() {
  stop_listening();
  close_all();
}

runtime::Result<runtime::Done> Server::listen(const std::string& path) {
  auto listener = runtime::listen_unix(path, SOCK_SEQPACKET);
  if (!listener) return listener.error();
  listener_ = std::move(*listener);
  path_ = path;
  loop_.watch(listener_.get(), EPOLLIN, [this](std::uint32_t) { accept(); });
  return runtime::Done{};
}

void Server::stop_listening() {
  if (!listener_) return;
  if (rest_timer_) loop_.cancel(*rest_timer_);
  rest_timer_.reset();
  loop_.remove(listener_.get());
  ::unlink(path_.c_str());
  listener_.reset();
}

void Server::close_all() {
  while (!connections_.empty()) close(connections_.begin()->first);
  ending_.finish();
}

void Server::accept() {
  runtime::UniqueFd socket(
      ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) {
    if (errno == EMFILE || errno == ENFILE) rest();
    return;
  }
  if (connections_.size() >= kMaxConnections) {
    spdlog::warn("too many connections; one more is refused");
    return;
  }
  if (!runtime::peer_is_trusted(socket.get())) {
    spdlog::warn("a process of another user is refused");
    return;
  }
  auto connection = std::make_unique<Connection>();
  connection->pid = runtime::peer_pid(socket.get());
  const int fd = socket.get();
  connection->socket = std::move(socket);
  connections_[fd] = std::move(connection);
  loop_.watch(fd, EPOLLIN, [this, fd](std::uint32_t) { serve(fd); });
}

void Server::rest() {
  spdlog::warn("out of descriptors; a connection has to wait");
  loop_.change(listener_.get(), 0);
  rest_timer_ = loop_.after(kRest, [this] {
    rest_timer_.reset();
    loop_.change(listener_.get(), EPOLLIN);
  });
}

void Server::serve(int fd) {
  for (int i = 0; i < kBurst; ++i) {
    const auto found = connections_.find(fd);
    if (found == connections_.end()) return;
    ReceiveResult received = receiver_.receive(fd);
    switch (received.what) {
      case Received::nothing:
        return;
      case Received::closed:
        close(fd);
        return;
      case Received::refused:
        send_reply(received.packet.reply_fd.get(), received.error, Reply());
        break;
      case Received::packet: {
        Reply reply;
        const int error = handle(*found->second, received.packet, reply);
        send_reply(received.packet.reply_fd.get(), error, reply);
        break;
      }
    }
  }
}

void Server::close(int fd) {
  const auto found = connections_.find(fd);
  if (found == connections_.end()) return;
  const std::unique_ptr<Connection> connection = std::move(found->second);
  connections_.erase(found);
  loop_.remove(fd);
  if (connection->context != nullptr) {
    ending_.end(std::move(connection->context));
  } else if (connection->role == Role::lease) {
    --leases_;
    owner_.users_changed();
  }
}

void Server::context_ended() {
  --contexts_;
  device_.shared_files().purge();
  owner_.users_changed();
}

int Server::handle(Connection& connection, Packet& packet, Reply& reply) {
  switch (packet.header.type) {
    case RequestType::hello:
      return hello(connection, packet, reply);
    case RequestType::lease:
      return lease(connection);
    case RequestType::control:
      return control(connection, packet, reply);
    case RequestType::refresh:
      owner_.refresh_tree();
      return 0;
    case RequestType::sweep:
      device_.shared_files().sweep(connection.pid);
      return 0;
    case RequestType::ioctl:
    case RequestType::write:
      return command(connection, packet, reply);
    case RequestType::mmap:
      return map(connection, packet, reply);
  }
  return EINVAL;
}

int Server::hello(Connection& connection, Packet& packet, Reply& reply) {
  HelloBody body;
  if (connection.role != Role::unknown || !take(packet.body, body) || packet.fds.size() != 1) {
    return EINVAL;
  }
  if (body.device_index != 0) return ENODEV;
  if (!device_.hca().alive()) {
    spdlog::error(
        "process {} cannot open the device: its emulator is gone; end the processes of this host "
        "and start again",
        connection.pid);
    return ENODEV;
  }
  connection.context = std::make_unique<Context>(
      device_, ClientMemory(std::move(packet.fds.front()), connection.pid));
  connection.role = Role::context;
  ++contexts_;
  owner_.users_changed();
  answer(reply, HelloReply{kMajor, kMinor});
  return 0;
}

int Server::lease(Connection& connection) {
  if (connection.role != Role::unknown) return EINVAL;
  connection.role = Role::lease;
  ++leases_;
  owner_.users_changed();
  return 0;
}

int Server::control(Connection& connection, const Packet& packet, Reply& reply) {
  ControlBody body;
  std::span<const std::byte> rest = packet.body;
  if ((connection.role != Role::unknown && connection.role != Role::control) || !take(rest, body)) {
    return EINVAL;
  }
  connection.role = Role::control;
  owner_.control(body.action);
  ControlReply state;
  state.pid = static_cast<std::uint32_t>(::getpid());
  state.leases = leases_;
  state.contexts = contexts_;
  state.persistent = owner_.persistent() ? 1 : 0;
  state.device_alive = device_.hca().alive() ? 1 : 0;
  answer(reply, state);
  return 0;
}

int Server::command(Connection& connection, Packet& packet, Reply& reply) {
  if (connection.context == nullptr) return EINVAL;
  Call call;
  call.mkey_state = packet.header.mkey_state;
  if ((packet.header.flags & kFlagShared) != 0) {
    if (packet.fds.empty()) return EINVAL;
    call.sharing = (packet.header.flags & kFlagUnshared) != 0 ? Sharing::partly : Sharing::shared;
  } else if ((packet.header.flags & kFlagUnshared) != 0) {
    call.sharing = Sharing::refused;
  }
  const bool brings_memory = (packet.header.flags & kFlagShared) != 0;
  std::size_t inputs = packet.fds.size() - (brings_memory ? 1 : 0);
  if ((packet.header.flags & kFlagOwnMemory) != 0) {
    if (inputs == 0) return EINVAL;
    call.own_memory = ClientMemory::identify(std::move(packet.fds[--inputs]));
    if (!call.own_memory) return EINVAL;
  }
  if (brings_memory) {
    const int memfd = packet.fds.back().get();
    const auto& map = connection.context->memory(call).map();
    if (const int error =
            call.shared.open(device_.shared_files(), memfd, map, std::move(packet.pieces))) {
      return error;
    }
  }
  // Not with a registration, of which the answer is to be soon. Nor after its answer: a caller on
  // this processor gets it when the daemon sleeps. Before the command, whose end leaves the engine
  // asleep, as the next command needs it.
  if (!brings_memory) device_.shared_files().tidy();
  std::vector<int> fds;
  for (std::size_t i = 0; i < inputs; ++i) fds.push_back(packet.fds[i].get());

  int error = 0;
  device_.shared_files().leave_unused((packet.header.flags & kFlagGivesBack) != 0);
  std::span<const std::byte> body = packet.body;
  if (packet.header.type == RequestType::ioctl) {
    IoctlBody head;
    error = take(body, head) ? dispatch_ioctl(*connection.context, call, head.command, body, fds)
                             : EINVAL;
  } else {
    error = dispatch_write(*connection.context, call, body, fds);
  }
  device_.shared_files().leave_unused(false);
  if (error > 0) return error;
  reply = std::move(call.reply);
  if (reply.status() == ReplyStatus::done && !brings_memory) {
    device_.shared_files().add_unused(connection.pid, reply);
  }
  return 0;
}

int Server::map(Connection& connection, const Packet& packet, Reply& reply) {
  MmapBody body;
  std::span<const std::byte> rest = packet.body;
  if (connection.context == nullptr || !take(rest, body)) return EINVAL;
  MmapReply where;
  runtime::UniqueFd fd;
  if (const int error = serve_mmap(*connection.context, body, where, fd)) return error;
  answer(reply, where);
  reply.attach(std::move(fd));
  return 0;
}

}  // namespace softhca::shim
