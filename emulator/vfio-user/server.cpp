// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/vfio-user/server.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <unordered_map>
#include <utility>

#include "emulator/vfio-user/message_io.h"
#include "emulator/vfio-user/request_handler.h"
#include "emulator/vfio-user/version.h"

namespace softhca::vfio_user {
namespace {

/// Requests to the client that may wait for their replies at once.
constexpr std::size_t kMaxDmaRequests = 256;

/// Who may drive a device: its owner and root. The mode of the socket says so too, unless somebody
/// changed it. No credentials: false.
bool is_trusted(int socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return false;
  return peer.uid == 0 || peer.uid == ::geteuid();
}

struct DmaRequest {
  Command command{};
  std::uint64_t address = 0;
  std::uint64_t count = 0;
  Server::DmaCompletion done;
};

/// All that belongs to one client. Kept alive by whoever is inside one of its messages while it is
/// closed.
struct Connection {
  Connection(FileDescriptor fd, const ServerLimits& limits)
      : socket(std::move(fd)), reader(max_message_size(limits.max_data_transfer)) {}

  FileDescriptor socket;
  MessageReader reader;
  MessageWriter writer;
  Capabilities client;
  std::optional<RequestHandler> handler;  ///< Empty until the version is negotiated.
  Reply reply;
  std::unordered_map<std::uint16_t, DmaRequest> dma_requests;
  std::uint16_t next_id = 0;
};

}  // namespace

struct Server::Impl {
  Impl(ServerDevice& device_in, ServerLimits limits_in) : device(device_in), limits(limits_in) {}

  ServerDevice& device;
  const ServerLimits limits;
  FileDescriptor listening;
  std::shared_ptr<Connection> connection;

  void accept_client();
  void close(const std::string& reason);
  void handle(Connection& at, Message& message);
  void handle_version(Connection& at, const Message& message);
  void handle_dma_reply(Connection& at, const Message& message);
  void answer(Connection& at, const Header& command, const Reply& reply);
  std::errc send_dma(Command command, std::uint64_t iova, std::uint64_t length,
                     std::span<const std::byte> data, DmaCompletion done);
  bool is_open(const Connection& at) const { return connection.get() == &at; }
};

Server::Server(ServerDevice& device, ServerLimits limits)
    : impl_(std::make_unique<Impl>(device, limits)) {}

Server::~Server() {
  impl_->close("server ends");
}

void Server::attach(FileDescriptor listening) {
  impl_->listening = std::move(listening);
}

void Server::adopt(FileDescriptor connection) {
  impl_->connection = std::make_shared<Connection>(std::move(connection), impl_->limits);
}

int Server::listen_fd() const {
  return impl_->listening.get();
}

int Server::connection_fd() const {
  return impl_->connection ? impl_->connection->socket.get() : -1;
}

bool Server::wants_write() const {
  return impl_->connection && impl_->connection->writer.queued_bytes() != 0;
}

bool Server::on_readable() {
  if (!impl_->connection) impl_->accept_client();
  const std::shared_ptr<Connection> at = impl_->connection;
  if (!at) return false;
  Message message;
  const std::uint64_t read_before = at->reader.bytes_read();
  bool filled = false;
  for (unsigned handled = 0; handled < impl_->limits.messages_per_call;) {
    switch (at->reader.next(message)) {
      case MessageReader::Next::message:
        impl_->handle(*at, message);
        if (!impl_->is_open(*at)) return false;
        ++handled;
        continue;
      case MessageReader::Next::malformed: {
        Reply refusal;
        refusal.error = EINVAL;
        impl_->answer(*at, message.header, refusal);
        impl_->close("message of impossible size");
        return false;
      }
      case MessageReader::Next::incomplete:
        break;
    }
    if (at->reader.bytes_read() - read_before >= impl_->limits.bytes_per_call) return true;
    // Whatever else there is shows when the socket is polled; asking is a system call a message.
    if (filled && at->reader.drained()) return false;
    switch (at->reader.fill(at->socket.get())) {
      case MessageReader::Fill::data:
        filled = true;
        break;
      case MessageReader::Fill::would_block:
        return false;
      case MessageReader::Fill::closed:
        impl_->close("client closed the connection");
        return false;
      case MessageReader::Fill::failed:
        impl_->close(std::string("receive: ") + std::strerror(errno));
        return false;
    }
  }
  return true;
}

void Server::on_writable() {
  const std::shared_ptr<Connection> at = impl_->connection;
  if (!at) return;
  if (at->writer.flush(at->socket.get()) == MessageWriter::Outcome::failed) {
    impl_->close(std::string("send: ") + std::strerror(errno));
  }
}

void Server::disconnect(const std::string& reason) {
  impl_->close(reason);
}

std::errc Server::dma_read(std::uint64_t iova, std::uint64_t length, DmaCompletion done) {
  return impl_->send_dma(Command::dma_read, iova, length, {}, std::move(done));
}

std::errc Server::dma_write(std::uint64_t iova, std::span<const std::byte> from,
                            DmaCompletion done) {
  return impl_->send_dma(Command::dma_write, iova, from.size(), from, std::move(done));
}

std::uint64_t Server::max_dma_transfer() const {
  if (!impl_->connection) return impl_->limits.max_data_transfer;
  return std::min(impl_->limits.max_data_transfer, impl_->connection->client.max_data_transfer);
}

void Server::Impl::accept_client() {
  if (!listening) return;
  int fd = -1;
  do {
    fd = ::accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  } while (fd < 0 && errno == EINTR);
  FileDescriptor client(fd);
  if (!client || !is_trusted(client.get())) return;
  connection = std::make_shared<Connection>(std::move(client), limits);
}

void Server::Impl::close(const std::string& reason) {
  const std::shared_ptr<Connection> at = std::exchange(connection, nullptr);
  if (!at) return;
  // Not closed at once: an outer frame may still use the connection; the peer sees its end here.
  ::shutdown(at->socket.get(), SHUT_RDWR);
  auto requests = std::exchange(at->dma_requests, {});
  for (auto& [id, request] : requests) request.done(std::errc::connection_reset, {});
  device.disconnected(reason);
}

void Server::Impl::handle(Connection& at, Message& message) {
  const std::uint32_t type = message.header.flags & kTypeMask;
  if (type == kTypeReply) {
    handle_dma_reply(at, message);
    return;
  }
  if (type != kTypeCommand) {
    close("message that is neither command nor reply");
    return;
  }
  if (!at.handler) {
    handle_version(at, message);
    return;
  }
  at.handler->handle(message, at.reply);
  if (is_open(at)) answer(at, message.header, at.reply);
}

void Server::Impl::handle_version(Connection& at, const Message& message) {
  VersionBody version;
  Capabilities client;
  Reply reply;
  if (message.header.command != Command::version || !message.fds.empty() || message.fds_lost ||
      !decode_version(message.body, version, client)) {
    reply.error = EINVAL;
  } else if (version.major != kVersionMajor) {
    reply.error = ENOTSUP;
  }
  if (reply.error != 0) {
    answer(at, message.header, reply);
    if (is_open(at)) close("no common protocol version");
    return;
  }
  at.client = client;
  Capabilities own;
  own.max_message_fds = limits.max_message_fds;
  own.max_data_transfer = limits.max_data_transfer;
  own.max_dma_maps = limits.max_dma_maps;
  own.write_multiple = client.write_multiple;
  const std::string body = encode_version(own);
  const auto bytes = std::as_bytes(std::span(body));
  reply.body.assign(bytes.begin(), bytes.end());
  at.handler.emplace(device, limits, client.max_message_fds);
  answer(at, message.header, reply);
}

void Server::Impl::handle_dma_reply(Connection& at, const Message& message) {
  const auto found = at.dma_requests.find(message.header.message_id);
  if (found == at.dma_requests.end() || found->second.command != message.header.command) {
    close("reply to nothing that was asked");
    return;
  }
  const DmaRequest request = std::move(found->second);
  at.dma_requests.erase(found);
  if ((message.header.flags & kFlagError) != 0) {
    const auto error = static_cast<std::errc>(message.header.error);
    request.done(error == std::errc{} ? std::errc::io_error : error, {});
    return;
  }
  DmaAccessBody body;
  const bool read = request.command == Command::dma_read;
  // The specification draws the count of a write's reply with four bytes, so only the address is
  // looked at.
  const std::size_t fixed = read ? sizeof body : sizeof body.address + sizeof(std::uint32_t);
  bool good = message.body.size() >= fixed;
  if (good) {
    std::memcpy(&body, message.body.data(), std::min(message.body.size(), sizeof body));
    good = body.address == request.address;
  }
  if (good && read) {
    good = body.count == request.count && message.body.size() - sizeof body == request.count;
  }
  if (!good) {
    request.done(std::errc::protocol_error, {});
    if (is_open(at)) close("reply that does not fit its request");
    return;
  }
  request.done({}, read ? message.body.subspan(sizeof body) : std::span<const std::byte>{});
}

void Server::Impl::answer(Connection& at, const Header& command, const Reply& reply) {
  if ((command.flags & kFlagNoReply) != 0) return;
  Header header;
  header.message_id = command.message_id;
  header.command = command.command;
  header.flags = kTypeReply;
  if (reply.error != 0) {
    header.flags |= kFlagError;
    header.error = static_cast<std::uint32_t>(reply.error);
  }
  const auto outcome = at.writer.send(at.socket.get(), header, reply.body, {}, reply.fds);
  if (outcome == MessageWriter::Outcome::failed) {
    close(std::string("send: ") + std::strerror(errno));
  } else if (at.writer.queued_bytes() > limits.max_output) {
    close("client does not read its replies");
  }
}

std::errc Server::Impl::send_dma(Command command, std::uint64_t iova, std::uint64_t length,
                                 std::span<const std::byte> data, DmaCompletion done) {
  const std::shared_ptr<Connection> at = connection;
  if (!at || !at->handler) return std::errc::not_connected;
  if (length == 0) return std::errc::invalid_argument;
  if (length > std::min(limits.max_data_transfer, at->client.max_data_transfer)) {
    return std::errc::message_size;
  }
  if (at->dma_requests.size() >= kMaxDmaRequests ||
      at->writer.queued_bytes() + length > limits.max_output) {
    return std::errc::no_buffer_space;
  }
  while (at->dma_requests.contains(at->next_id)) ++at->next_id;
  Header header;
  header.message_id = at->next_id++;
  header.command = command;
  header.flags = kTypeCommand;
  const DmaAccessBody body{iova, length};
  if (at->writer.send(at->socket.get(), header, wire_bytes(body), data) ==
      MessageWriter::Outcome::failed) {
    // Not closed from within the caller's step: the next input event finds the broken socket.
    return std::errc::not_connected;
  }
  at->dma_requests.emplace(header.message_id, DmaRequest{command, iova, length, std::move(done)});
  return {};
}

}  // namespace softhca::vfio_user
