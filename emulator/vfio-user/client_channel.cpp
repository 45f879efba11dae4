// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/vfio-user/client_channel.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace softhca::vfio_user {
namespace {

Error system_error(const char* what) {
  const int code = errno;
  return {ErrorKind::system, code, std::string(what) + ": " + std::strerror(code)};
}

Error disconnected() {
  return {ErrorKind::disconnected, ENOTCONN, "no connection to the device"};
}

Error refusal(const Message& reply) {
  const int code = static_cast<int>(reply.header.error);
  return {ErrorKind::refused, code, std::string("the device refused: ") + std::strerror(code)};
}

}  // namespace

FileDescriptor duplicate(int fd) {
  return FileDescriptor(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
}

ClientChannel::ClientChannel(FileDescriptor socket, const ClientOptions& options)
    : socket_(std::move(socket)),
      options_(options),
      reader_(max_message_size(options.max_data_transfer)) {}

Error ClientChannel::fail(Error error) {
  broken_ = true;
  ::shutdown(socket_.get(), SHUT_RDWR);
  return error;
}

Status ClientChannel::wait(short events, Clock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return fail({ErrorKind::timeout, ETIMEDOUT, "the device does not answer"});
    pollfd entry{socket_.get(), events, 0};
    const int ready = ::poll(&entry, 1, static_cast<int>(std::min<long>(left, 60'000)));
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return fail(system_error("poll"));
  }
}

Status ClientChannel::flush(Clock::time_point deadline) {
  for (;;) {
    switch (writer_.flush(socket_.get())) {
      case MessageWriter::Outcome::sent:
        return {};
      case MessageWriter::Outcome::failed:
        return fail({ErrorKind::disconnected, errno, std::string("send: ") + std::strerror(errno)});
      case MessageWriter::Outcome::queued:
        if (Status status = wait(POLLOUT, deadline); !status) return status;
    }
  }
}

Status ClientChannel::send(const Header& header, std::span<const std::byte> body,
                           std::span<const std::byte> data, std::span<const int> fds,
                           Clock::time_point deadline) {
  switch (writer_.send(socket_.get(), header, body, data, fds)) {
    case MessageWriter::Outcome::sent:
      return {};
    case MessageWriter::Outcome::failed:
      if (errno == EBADF || errno == EINVAL || errno == ETOOMANYREFS) {
        // The caller's descriptors, not the connection: nothing was sent.
        return system_error("send");
      }
      return fail({ErrorKind::disconnected, errno, std::string("send: ") + std::strerror(errno)});
    case MessageWriter::Outcome::queued:
      break;
  }
  return flush(deadline);
}

Status ClientChannel::exchange(Command command, std::span<const std::byte> body,
                               std::span<const std::byte> data, std::span<const int> fds,
                               Message& reply) {
  if (broken_) return disconnected();
  const auto deadline = Clock::now() + options_.timeout;
  Header header;
  header.message_id = next_id_++;
  header.command = command;
  header.flags = kTypeCommand;
  if (Status status = send(header, body, data, fds, deadline); !status) return status;
  for (;;) {
    switch (reader_.next(reply)) {
      case MessageReader::Next::malformed:
        return fail({ErrorKind::protocol, 0, "message of impossible size"});
      case MessageReader::Next::message:
        if ((reply.header.flags & kTypeMask) == kTypeCommand) {
          if (Status status = answer(reply, deadline); !status) return status;
          continue;
        }
        if (takes_started(reply)) continue;
        if (reply.header.message_id != header.message_id || reply.header.command != command) {
          return fail({ErrorKind::protocol, 0, "reply to something that was not asked"});
        }
        if ((reply.header.flags & kFlagError) != 0) return refusal(reply);
        if (reply.fds_lost) return system_error("descriptors of a reply were lost");
        return {};
      case MessageReader::Next::incomplete:
        break;
    }
    if (Status status = fill(deadline); !status) return status;
  }
}

Status ClientChannel::fill(Clock::time_point deadline) {
  switch (reader_.fill(socket_.get())) {
    case MessageReader::Fill::data:
      break;
    case MessageReader::Fill::would_block:
      return wait(POLLIN, deadline);
    case MessageReader::Fill::closed:
      return fail({ErrorKind::disconnected, 0, "the device closed the connection"});
    case MessageReader::Fill::failed:
      return fail(
          {ErrorKind::disconnected, errno, std::string("receive: ") + std::strerror(errno)});
  }
  return {};
}

bool ClientChannel::takes_started(const Message& reply) {
  if (started_.empty() || reply.header.message_id != started_.front().id ||
      reply.header.command != started_.front().command) {
    return false;
  }
  if ((reply.header.flags & kFlagError) != 0 && outcome_) outcome_ = refusal(reply);
  started_.pop_front();
  return true;
}

Status ClientChannel::start(Command command, std::span<const std::byte> body,
                            std::span<const int> fds) {
  if (broken_) return disconnected();
  Header header;
  header.message_id = next_id_++;
  header.command = command;
  header.flags = kTypeCommand;
  if (Status status = send(header, body, {}, fds, Clock::now() + options_.timeout); !status) {
    return status;
  }
  started_.push_back({header.message_id, command});
  return {};
}

Status ClientChannel::await_started() {
  const auto deadline = Clock::now() + options_.timeout;
  Message message;
  while (!started_.empty()) {
    if (broken_) return disconnected();
    switch (reader_.next(message)) {
      case MessageReader::Next::malformed:
        return fail({ErrorKind::protocol, 0, "message of impossible size"});
      case MessageReader::Next::message:
        if ((message.header.flags & kTypeMask) == kTypeCommand) {
          if (Status status = answer(message, deadline); !status) return status;
        } else if (!takes_started(message)) {
          return fail({ErrorKind::protocol, 0, "reply to something that was not asked"});
        }
        continue;
      case MessageReader::Next::incomplete:
        break;
    }
    if (Status status = fill(deadline); !status) return status;
  }
  return {};
}

Status ClientChannel::settle() {
  if (Status status = await_started(); !status) return status;
  return std::exchange(outcome_, Status());
}

Status ClientChannel::post(Command command, std::span<const std::byte> body,
                           std::span<const std::byte> data) {
  if (broken_) return disconnected();
  Header header;
  header.message_id = next_id_++;
  header.command = command;
  header.flags = kTypeCommand | kFlagNoReply;
  return send(header, body, data, {}, Clock::now() + options_.timeout);
}

Status ClientChannel::serve() {
  if (broken_) return disconnected();
  const auto deadline = Clock::now() + options_.timeout;
  Message message;
  for (;;) {
    switch (reader_.next(message)) {
      case MessageReader::Next::malformed:
        return fail({ErrorKind::protocol, 0, "message of impossible size"});
      case MessageReader::Next::message:
        if (takes_started(message)) continue;
        if ((message.header.flags & kTypeMask) != kTypeCommand) {
          return fail({ErrorKind::protocol, 0, "reply to something that was not asked"});
        }
        if (Status status = answer(message, deadline); !status) return status;
        continue;
      case MessageReader::Next::incomplete:
        break;
    }
    switch (reader_.fill(socket_.get())) {
      case MessageReader::Fill::data:
        break;
      case MessageReader::Fill::would_block:
        return {};
      case MessageReader::Fill::closed:
        return fail({ErrorKind::disconnected, 0, "the device closed the connection"});
      case MessageReader::Fill::failed:
        return fail(
            {ErrorKind::disconnected, errno, std::string("receive: ") + std::strerror(errno)});
    }
  }
}

Status ClientChannel::answer(const Message& message, Clock::time_point deadline) {
  Header header;
  header.message_id = message.header.message_id;
  header.command = message.header.command;
  header.flags = kTypeReply;
  DmaAccessBody body;
  std::errc error = std::errc::invalid_argument;
  answer_data_.clear();
  const bool read = message.header.command == Command::dma_read;
  const bool write = message.header.command == Command::dma_write;
  if ((read || write) && message.body.size() >= sizeof body && options_.dma_memory != nullptr) {
    std::memcpy(&body, message.body.data(), sizeof body);
    const auto data = message.body.subspan(sizeof body);
    if (body.count != 0 && body.count <= options_.max_data_transfer &&
        data.size() == (write ? body.count : 0)) {
      answer_data_.resize(read ? body.count : 0);
      error = read ? options_.dma_memory->dma_read(body.address, answer_data_)
                   : options_.dma_memory->dma_write(body.address, data);
    }
  }
  if ((message.header.flags & kFlagNoReply) != 0) return {};
  if (error == std::errc{}) return send(header, wire_bytes(body), answer_data_, {}, deadline);
  header.flags |= kFlagError;
  header.error = static_cast<std::uint32_t>(error);
  return send(header, {}, {}, {}, deadline);
}

}  // namespace softhca::vfio_user
