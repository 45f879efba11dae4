// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/vfio-user/client.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <utility>

#include "emulator/vfio-user/client_channel.h"
#include "emulator/vfio-user/unix_socket.h"
#include "emulator/vfio-user/version.h"

namespace softhca::vfio_user {
namespace {

constexpr std::uint32_t kMaxCapabilityBytes = 64U << 10;

Error bad_reply(const char* what) {
  return {ErrorKind::protocol, 0, what};
}

template <typename T>
bool read_at(std::span<const std::byte> from, std::size_t offset, T& out) {
  if (offset > from.size() || from.size() - offset < sizeof out) return false;
  std::memcpy(&out, from.data() + offset, sizeof out);
  return true;
}

/// Reads the capability list behind a RegionInfoBody; the list must go forward, so it ends.
bool read_capabilities(std::span<const std::byte> body, std::uint32_t offset, ClientRegion& out) {
  while (offset != 0) {
    CapHeader header;
    if (offset < sizeof(RegionInfoBody) || !read_at(body, offset, header)) return false;
    if (header.id == kCapSparseMmap) {
      CapSparseMmap cap;
      if (!read_at(body, offset, cap)) return false;
      const std::size_t room = (body.size() - offset - sizeof cap) / sizeof(MmapArea);
      if (cap.nr_areas > room) return false;
      out.mmap_areas.resize(cap.nr_areas);
      for (std::size_t i = 0; i < out.mmap_areas.size(); ++i) {
        read_at(body, offset + sizeof cap + i * sizeof(MmapArea), out.mmap_areas[i]);
      }
    } else if (header.id == kCapRegionType) {
      CapRegionType cap;
      if (!read_at(body, offset, cap)) return false;
      out.type = cap;
    }
    if (header.next != 0 && header.next <= offset) return false;
    offset = header.next;
  }
  return true;
}

bool areas_inside(const ClientRegion& region) {
  return std::all_of(region.mmap_areas.begin(), region.mmap_areas.end(), [&](const MmapArea& area) {
    return area.offset <= region.size && area.size <= region.size - area.offset;
  });
}

}  // namespace

struct Client::Impl {
  Impl(FileDescriptor socket, ClientOptions options_in)
      : options(options_in), channel(std::move(socket), options_in) {}

  const ClientOptions options;
  std::mutex mutex;
  ClientChannel channel;
  Capabilities server;

  Status negotiate();
  /// Sends a command whose reply has a body of fixed size T.
  template <typename T>
  Result<T> ask(Command command, const T& body);
  /// Sends a command whose reply's body is of no interest.
  Status tell(Command command, std::span<const std::byte> body,
              std::span<const std::byte> data = {}, std::span<const int> fds = {});
  Status set_irqs(std::uint32_t index, std::uint32_t flags, std::uint32_t start,
                  std::uint32_t count, std::span<const int> fds);
};

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::~Client() = default;

Result<std::unique_ptr<Client>> Client::connect(const std::string& path, ClientOptions options) {
  auto socket = connect_unix(path);
  if (!socket) return socket.error();
  return connect(std::move(*socket), options);
}

Result<std::unique_ptr<Client>> Client::connect(FileDescriptor socket, ClientOptions options) {
  options.max_message_fds = std::min(options.max_message_fds, kMaxMessageFds);
  auto impl = std::make_unique<Impl>(std::move(socket), options);
  if (Status status = impl->negotiate(); !status) return status.error();
  return std::unique_ptr<Client>(new Client(std::move(impl)));
}

Status Client::Impl::negotiate() {
  Capabilities own;
  own.max_message_fds = options.max_message_fds;
  own.max_data_transfer = options.max_data_transfer;
  const std::string body = encode_version(own);
  Message reply;
  if (Status status =
          channel.exchange(Command::version, std::as_bytes(std::span(body)), {}, {}, reply);
      !status) {
    return status;
  }
  VersionBody version;
  if (!decode_version(reply.body, version, server)) {
    return channel.fail(bad_reply("version reply cannot be read"));
  }
  if (version.major != kVersionMajor || version.minor > kVersionMinor) {
    return channel.fail(bad_reply("server speaks another protocol version"));
  }
  return {};
}

template <typename T>
Result<T> Client::Impl::ask(Command command, const T& body) {
  Message reply;
  if (Status status = channel.exchange(command, wire_bytes(body), {}, {}, reply); !status) {
    return status.error();
  }
  T answer;
  if (!read_at(reply.body, 0, answer)) return channel.fail(bad_reply("reply is too short"));
  return answer;
}

Status Client::Impl::tell(Command command, std::span<const std::byte> body,
                          std::span<const std::byte> data, std::span<const int> fds) {
  Message reply;
  return channel.exchange(command, body, data, fds, reply);
}

Status Client::Impl::set_irqs(std::uint32_t index, std::uint32_t flags, std::uint32_t start,
                              std::uint32_t count, std::span<const int> fds) {
  SetIrqsBody body;
  body.flags = flags;
  body.index = index;
  body.start = start;
  body.count = count;
  return tell(Command::device_set_irqs, wire_bytes(body), {}, fds);
}

int Client::fd() const {
  return impl_->channel.fd();
}

Status Client::serve() {
  const std::lock_guard lock(impl_->mutex);
  return impl_->channel.serve();
}

std::uint32_t Client::server_max_fds() const {
  return impl_->server.max_message_fds;
}
std::uint64_t Client::server_max_data() const {
  return impl_->server.max_data_transfer;
}

Result<DeviceInfoBody> Client::device_info() {
  const std::lock_guard lock(impl_->mutex);
  return impl_->ask(Command::device_get_info, DeviceInfoBody{});
}

Result<IrqInfoBody> Client::irq_info(std::uint32_t index) {
  const std::lock_guard lock(impl_->mutex);
  IrqInfoBody body;
  body.index = index;
  return impl_->ask(Command::device_get_irq_info, body);
}

Result<ClientRegion> Client::region_info(std::uint32_t index) {
  const std::lock_guard lock(impl_->mutex);
  RegionInfoBody body;
  body.index = index;
  Message reply;
  RegionInfoBody answer;
  // Asked again when the server says that its capabilities need more room.
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (Status status = impl_->channel.exchange(Command::device_get_region_info, wire_bytes(body),
                                                {}, {}, reply);
        !status) {
      return status.error();
    }
    if (!read_at(reply.body, 0, answer)) {
      return impl_->channel.fail(bad_reply("region info is too short"));
    }
    if (answer.argsz <= body.argsz) break;
    if (answer.argsz > kMaxCapabilityBytes) {
      return impl_->channel.fail(bad_reply("region info is too long"));
    }
    body.argsz = answer.argsz;
  }
  ClientRegion region;
  region.size = answer.size;
  region.flags = answer.flags;
  if ((answer.flags & kRegionCaps) != 0 &&
      !read_capabilities(reply.body, answer.cap_offset, region)) {
    return impl_->channel.fail(bad_reply("region capabilities are malformed"));
  }
  if ((answer.flags & kRegionMmap) == 0) return region;
  if (reply.fds.empty()) return bad_reply("mappable region without a descriptor");
  region.fd = std::move(reply.fds.front());
  region.fd_offset = answer.offset;
  if (region.mmap_areas.empty()) region.mmap_areas.push_back({0, region.size});
  if (!areas_inside(region)) {
    return impl_->channel.fail(bad_reply("mappable area outside of its region"));
  }
  return region;
}

Result<std::vector<ClientIoEventFd>> Client::region_io_fds(std::uint32_t index) {
  const std::lock_guard lock(impl_->mutex);
  RegionIoFdsBody body;
  body.index = index;
  body.argsz += impl_->options.max_message_fds * sizeof(IoEventFdBody);
  Message reply;
  if (Status status = impl_->channel.exchange(Command::device_get_region_io_fds, wire_bytes(body),
                                              {}, {}, reply);
      !status) {
    return status.error();
  }
  RegionIoFdsBody answer;
  if (!read_at(reply.body, 0, answer) ||
      answer.count > (reply.body.size() - sizeof answer) / sizeof(IoEventFdBody)) {
    return impl_->channel.fail(bad_reply("region descriptors reply is malformed"));
  }
  std::vector<ClientIoEventFd> entries;
  for (std::uint32_t i = 0; i < answer.count; ++i) {
    IoEventFdBody record;
    read_at(reply.body, sizeof answer + i * sizeof record, record);
    if (record.type != kIoFdIoEventFd) continue;
    if (record.fd_index >= reply.fds.size()) {
      return impl_->channel.fail(bad_reply("region descriptor index out of range"));
    }
    FileDescriptor copy = duplicate(reply.fds[record.fd_index].get());
    if (!copy) return Error{ErrorKind::system, errno, "duplicate a region descriptor"};
    entries.push_back(
        {record.offset, record.size, record.flags, record.datamatch, std::move(copy)});
  }
  return entries;
}

Status Client::region_read(std::uint32_t region, std::uint64_t offset, std::span<std::byte> to) {
  const std::lock_guard lock(impl_->mutex);
  if (to.empty() || to.size() > impl_->server.max_data_transfer) {
    return Error{ErrorKind::argument, EINVAL, "region read of a size the server does not take"};
  }
  const RegionAccessBody body{offset, region, static_cast<std::uint32_t>(to.size())};
  Message reply;
  if (Status status =
          impl_->channel.exchange(Command::region_read, wire_bytes(body), {}, {}, reply);
      !status) {
    return status;
  }
  if (reply.body.size() != sizeof body + to.size()) {
    return impl_->channel.fail(bad_reply("region read returned another size"));
  }
  std::memcpy(to.data(), reply.body.data() + sizeof body, to.size());
  return {};
}

Status Client::region_write(std::uint32_t region, std::uint64_t offset,
                            std::span<const std::byte> from, Posting posting) {
  const std::lock_guard lock(impl_->mutex);
  if (from.empty() || from.size() > impl_->server.max_data_transfer) {
    return Error{ErrorKind::argument, EINVAL, "region write of a size the server does not take"};
  }
  const RegionAccessBody body{offset, region, static_cast<std::uint32_t>(from.size())};
  if (posting == Posting::posted) {
    return impl_->channel.post(Command::region_write, wire_bytes(body), from);
  }
  return impl_->tell(Command::region_write, wire_bytes(body), from);
}

Status Client::set_irq_eventfds(std::uint32_t index, std::uint32_t start,
                                std::span<const int> eventfds) {
  const std::lock_guard lock(impl_->mutex);
  const std::size_t limit = std::min<std::size_t>(impl_->server.max_message_fds, kMaxMessageFds);
  if (eventfds.empty() || limit == 0) {
    return Error{ErrorKind::argument, EINVAL, "no eventfd to attach"};
  }
  while (!eventfds.empty()) {
    const auto part = eventfds.first(std::min(limit, eventfds.size()));
    Status status = impl_->set_irqs(index, kIrqSetDataEventFd | kIrqSetActionTrigger, start,
                                    static_cast<std::uint32_t>(part.size()), part);
    if (!status) return status;
    start += static_cast<std::uint32_t>(part.size());
    eventfds = eventfds.subspan(part.size());
  }
  return {};
}

Status Client::detach_irqs(std::uint32_t index, std::uint32_t start, std::uint32_t count) {
  const std::lock_guard lock(impl_->mutex);
  return impl_->set_irqs(index, kIrqSetDataEventFd | kIrqSetActionTrigger, start, count, {});
}

Status Client::disable_irqs(std::uint32_t index) {
  const std::lock_guard lock(impl_->mutex);
  return impl_->set_irqs(index, kIrqSetDataNone | kIrqSetActionTrigger, 0, 0, {});
}

Status Client::act_on_irqs(std::uint32_t index, std::uint32_t action, std::uint32_t start,
                           std::uint32_t count) {
  const std::lock_guard lock(impl_->mutex);
  return impl_->set_irqs(index, kIrqSetDataNone | action, start, count, {});
}

namespace {

DmaMapBody map_body(std::uint64_t iova, std::uint64_t size, std::uint32_t flags,
                    std::uint64_t offset) {
  DmaMapBody body;
  body.flags = flags;
  body.offset = offset;
  body.address = iova;
  body.size = size;
  return body;
}

}  // namespace

Status Client::dma_map(std::uint64_t iova, std::uint64_t size, std::uint32_t flags, int fd,
                       std::uint64_t offset) {
  const std::lock_guard lock(impl_->mutex);
  const DmaMapBody body = map_body(iova, size, flags, offset);
  return impl_->tell(Command::dma_map, wire_bytes(body), {}, std::span(&fd, fd >= 0 ? 1U : 0U));
}

Status Client::start_dma_map(std::uint64_t iova, std::uint64_t size, std::uint32_t flags, int fd,
                             std::uint64_t offset) {
  const std::lock_guard lock(impl_->mutex);
  const DmaMapBody body = map_body(iova, size, flags, offset);
  return impl_->channel.start(Command::dma_map, wire_bytes(body),
                              std::span(&fd, fd >= 0 ? 1U : 0U));
}

Status Client::await_started() {
  const std::lock_guard lock(impl_->mutex);
  return impl_->channel.await_started();
}

Status Client::settle() {
  const std::lock_guard lock(impl_->mutex);
  return impl_->channel.settle();
}

bool Client::has_started() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->channel.has_started();
}

Status Client::dma_unmap(std::uint64_t iova, std::uint64_t size) {
  const std::lock_guard lock(impl_->mutex);
  DmaUnmapBody body;
  body.address = iova;
  body.size = size;
  return impl_->tell(Command::dma_unmap, wire_bytes(body));
}

Status Client::dma_unmap_all() {
  const std::lock_guard lock(impl_->mutex);
  DmaUnmapBody body;
  body.flags = kUnmapAll;
  return impl_->tell(Command::dma_unmap, wire_bytes(body));
}

Status Client::reset() {
  const std::lock_guard lock(impl_->mutex);
  return impl_->tell(Command::device_reset, {});
}

}  // namespace softhca::vfio_user
