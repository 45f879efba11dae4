// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/vfio-user/request_handler.h"

#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

namespace softhca::vfio_user {
namespace {

/// Copies the fixed part of a body; false if it is shorter. Nothing is read twice.
template <typename T>
bool read_fixed(std::span<const std::byte> body, T& out) {
  if (body.size() < sizeof out) return false;
  std::memcpy(&out, body.data(), sizeof out);
  return true;
}

template <typename T>
void append(std::vector<std::byte>& to, const T& value) {
  const auto bytes = wire_bytes(value);
  to.insert(to.end(), bytes.begin(), bytes.end());
}

bool wraps(std::uint64_t start, std::uint64_t size) {
  return start + size < start;
}

bool takes_fds(Command command) {
  return command == Command::dma_map || command == Command::device_set_irqs;
}

}  // namespace

RequestHandler::RequestHandler(ServerDevice& device, const ServerLimits& limits,
                               std::uint32_t client_max_fds)
    : device_(device),
      limits_(limits),
      client_max_fds_(client_max_fds),
      regions_(device.regions()),
      irqs_(device.irqs()) {}

void RequestHandler::handle(Message& message, Reply& reply) {
  reply.clear();
  const Command command = message.header.command;
  if (message.fds_lost || message.fds.size() > limits_.max_message_fds) {
    reply.error = message.fds_lost ? EMFILE : EINVAL;
    return;
  }
  if (!message.fds.empty() && !takes_fds(command)) {
    reply.error = EINVAL;
    return;
  }
  const auto run = [&]() -> int {
    switch (command) {
      case Command::dma_map:
        return dma_map(message);
      case Command::dma_unmap:
        return dma_unmap(message.body, reply);
      case Command::device_get_info:
        return device_info(message.body, reply);
      case Command::device_get_region_info:
        return region_info(message.body, reply);
      case Command::device_get_region_io_fds:
        return region_io_fds(message.body, reply);
      case Command::device_get_irq_info:
        return irq_info(message.body, reply);
      case Command::device_set_irqs:
        return set_irqs(message);
      case Command::region_read:
        return region_read(message.body, reply);
      case Command::region_write:
        return region_write(message.body, reply);
      case Command::region_write_multi:
        return region_write_multi(message.body, reply);
      case Command::device_reset:
        return device_reset(message.body);
      case Command::device_feature:
        return ENOTSUP;
      case Command::version:  // Once per connection, handled before.
      case Command::dma_read:
      case Command::dma_write:  // Only the server sends these.
        break;
    }
    return EINVAL;
  };
  const int error = run();
  if (error != 0) reply.clear();
  reply.error = error;
}

int RequestHandler::dma_map(Message& message) {
  DmaMapBody body;
  if (message.body.size() != sizeof body || !read_fixed(message.body, body)) return EINVAL;
  if (body.argsz < sizeof body || message.fds.size() > 1) return EINVAL;
  if ((body.flags & ~(kDmaRead | kDmaWrite)) != 0 || body.flags == 0) return EINVAL;
  if (body.size == 0 || wraps(body.address, body.size) || wraps(body.offset, body.size)) {
    return EINVAL;
  }
  DmaMapRequest request;
  request.iova = body.address;
  request.size = body.size;
  request.readable = (body.flags & kDmaRead) != 0;
  request.writable = (body.flags & kDmaWrite) != 0;
  request.offset = body.offset;
  if (!message.fds.empty()) request.fd = std::move(message.fds.front());
  return static_cast<int>(device_.dma_map(std::move(request)));
}

int RequestHandler::dma_unmap(Body bytes, Reply& reply) {
  DmaUnmapBody body;
  if (bytes.size() < sizeof body || !read_fixed(bytes, body)) return EINVAL;
  if (body.argsz < sizeof body) return EINVAL;
  if ((body.flags & kUnmapGetDirtyBitmap) != 0) return ENOTSUP;
  if (bytes.size() != sizeof body || (body.flags & ~kUnmapAll) != 0) return EINVAL;
  if ((body.flags & kUnmapAll) != 0) {
    if (body.address != 0 || body.size != 0) return EINVAL;
    device_.dma_unmap_all();
  } else {
    if (body.size == 0 || wraps(body.address, body.size)) return EINVAL;
    const int error = static_cast<int>(device_.dma_unmap(body.address, body.size));
    if (error != 0) return error;
  }
  append(reply.body, body);
  return 0;
}

int RequestHandler::device_info(Body bytes, Reply& reply) {
  DeviceInfoBody body;
  if (!read_fixed(bytes, body) || body.argsz < sizeof body) return EINVAL;
  DeviceInfoBody answer;
  answer.flags = kDeviceReset | kDevicePci;
  answer.num_regions = static_cast<std::uint32_t>(regions_.size());
  answer.num_irqs = static_cast<std::uint32_t>(irqs_.size());
  append(reply.body, answer);
  return 0;
}

// A client that asks with too small an argsz learns the size it needs: it still must find flags and
// cap_offset filled in (QEMU refuses a device with kRegionCaps and cap_offset 0), and gets the
// descriptor only with the whole answer, since it drops the first one.
int RequestHandler::region_info(Body bytes, Reply& reply) {
  RegionInfoBody body;
  if (!read_fixed(bytes, body) || body.argsz < sizeof body) return EINVAL;
  if (body.index >= regions_.size()) return EINVAL;
  const ServerRegion& region = regions_[body.index];
  const bool mappable = region.fd >= 0 && region.size != 0;
  const bool sparse = mappable && !region.mmap_areas.empty();

  RegionInfoBody answer;
  answer.index = body.index;
  answer.size = region.size;
  if (region.readable) answer.flags |= kRegionRead;
  if (region.writable) answer.flags |= kRegionWrite;
  if (mappable) {
    answer.flags |= kRegionMmap;
    answer.offset = region.fd_offset;
  }
  std::uint32_t full = sizeof answer;
  if (sparse) {
    full += sizeof(CapSparseMmap) +
            static_cast<std::uint32_t>(region.mmap_areas.size() * sizeof(MmapArea));
  }
  const std::uint32_t type_offset = full;
  if (region.type) full += sizeof(CapRegionType);
  if (full > sizeof answer) {
    answer.flags |= kRegionCaps;
    answer.cap_offset = sizeof answer;
  }
  answer.argsz = full;
  append(reply.body, answer);
  if (body.argsz < full) return 0;

  if (sparse) {
    CapSparseMmap cap;
    cap.header.next = region.type ? type_offset : 0;
    cap.nr_areas = static_cast<std::uint32_t>(region.mmap_areas.size());
    append(reply.body, cap);
    for (const MmapArea& area : region.mmap_areas) append(reply.body, area);
  }
  if (region.type) append(reply.body, *region.type);
  if (mappable) reply.fds.push_back(region.fd);
  return 0;
}

int RequestHandler::region_io_fds(Body bytes, Reply& reply) {
  RegionIoFdsBody body;
  if (!read_fixed(bytes, body) || body.argsz < sizeof body) return EINVAL;
  if (body.flags != 0 || body.count != 0 || body.index >= regions_.size()) return EINVAL;
  const std::vector<ServerIoEventFd> entries = device_.region_io_fds(body.index);
  if (entries.size() > client_max_fds_) return EMSGSIZE;
  RegionIoFdsBody answer;
  answer.index = body.index;
  answer.argsz += static_cast<std::uint32_t>(entries.size() * sizeof(IoEventFdBody));
  const bool fits = body.argsz >= answer.argsz;
  if (fits) answer.count = static_cast<std::uint32_t>(entries.size());
  append(reply.body, answer);
  if (!fits) return 0;
  for (const ServerIoEventFd& entry : entries) {
    IoEventFdBody record;
    record.offset = entry.offset;
    record.size = entry.size;
    record.fd_index = static_cast<std::uint32_t>(reply.fds.size());
    record.flags = entry.flags;
    record.datamatch = entry.datamatch;
    append(reply.body, record);
    reply.fds.push_back(entry.fd);
  }
  return 0;
}

int RequestHandler::irq_info(Body bytes, Reply& reply) {
  IrqInfoBody body;
  if (!read_fixed(bytes, body) || body.argsz < sizeof body) return EINVAL;
  if (body.index >= irqs_.size()) return EINVAL;
  IrqInfoBody answer;
  answer.index = body.index;
  answer.flags = irqs_[body.index].flags;
  answer.count = irqs_[body.index].count;
  append(reply.body, answer);
  return 0;
}

int RequestHandler::set_irqs(Message& message) {
  SetIrqsBody body;
  if (!read_fixed(message.body, body) || body.argsz < sizeof body) return EINVAL;
  if (body.index >= irqs_.size()) return EINVAL;
  const ServerIrq& irq = irqs_[body.index];
  SetIrqsRequest request;
  request.index = body.index;
  request.start = body.start;
  request.count = body.count;
  request.data = body.flags & kIrqSetDataMask;
  request.action = body.flags & kIrqSetActionBits;
  if ((body.flags & ~(kIrqSetDataMask | kIrqSetActionBits)) != 0) return EINVAL;
  if (std::popcount(request.data) != 1 || std::popcount(request.action) != 1) return EINVAL;
  if (request.action != kIrqSetActionTrigger && (irq.flags & kIrqMaskable) == 0) return EINVAL;

  if (body.count == 0) {
    // The one request without a range: switch the whole index off.
    if (body.start != 0 || request.data != kIrqSetDataNone ||
        request.action != kIrqSetActionTrigger) {
      return EINVAL;
    }
  } else if (body.start >= irq.count || body.count > irq.count - body.start) {
    return EINVAL;
  }
  const Body data = message.body.subspan(sizeof body);
  const std::size_t wanted = request.data == kIrqSetDataBool ? body.count : 0;
  if (data.size() != wanted) return EINVAL;
  if (request.data == kIrqSetDataEventFd) {
    if (!message.fds.empty() && message.fds.size() != body.count) return EINVAL;
    request.eventfds = std::move(message.fds);
  } else if (!message.fds.empty()) {
    return EINVAL;
  }
  request.flags = {reinterpret_cast<const std::uint8_t*>(data.data()), data.size()};
  return static_cast<int>(device_.set_irqs(std::move(request)));
}

int RequestHandler::check_access(std::uint32_t index, std::uint64_t offset, std::uint64_t count,
                                 bool write) const {
  if (index >= regions_.size() || count == 0 || count > limits_.max_data_transfer) return EINVAL;
  const ServerRegion& region = regions_[index];
  if (offset >= region.size || count > region.size - offset) return EINVAL;
  return (write ? region.writable : region.readable) ? 0 : EPERM;
}

int RequestHandler::region_read(Body bytes, Reply& reply) {
  RegionAccessBody body;
  if (bytes.size() != sizeof body || !read_fixed(bytes, body)) return EINVAL;
  if (const int error = check_access(body.region, body.offset, body.count, false)) return error;
  append(reply.body, body);
  reply.body.resize(sizeof body + body.count);
  return static_cast<int>(
      device_.region_read(body.region, body.offset, std::span(reply.body).subspan(sizeof body)));
}

int RequestHandler::region_write(Body bytes, Reply& reply) {
  RegionAccessBody body;
  if (!read_fixed(bytes, body) || bytes.size() - sizeof body != body.count) return EINVAL;
  if (const int error = check_access(body.region, body.offset, body.count, true)) return error;
  const std::errc error =
      device_.region_write(body.region, body.offset, bytes.subspan(sizeof body));
  if (error != std::errc{}) return static_cast<int>(error);
  append(reply.body, body);
  return 0;
}

int RequestHandler::region_write_multi(Body bytes, Reply& reply) {
  RegionWriteMultiBody body;
  if (!read_fixed(bytes, body)) return EINVAL;
  const Body records = bytes.subspan(sizeof body);
  if (records.size() % sizeof(RegionWriteRecord) != 0) return EINVAL;
  if (records.size() / sizeof(RegionWriteRecord) != body.count || body.count == 0) return EINVAL;
  for (std::uint64_t i = 0; i < body.count; ++i) {
    RegionWriteRecord record;
    std::memcpy(&record, records.data() + i * sizeof record, sizeof record);
    if (record.count > sizeof record.data) return EINVAL;
    if (const int error = check_access(record.region, record.offset, record.count, true)) {
      return error;
    }
    const std::errc error = device_.region_write(
        record.region, record.offset, std::as_bytes(std::span(record.data)).first(record.count));
    if (error != std::errc{}) return static_cast<int>(error);
  }
  append(reply.body, body);
  return 0;
}

int RequestHandler::device_reset(Body body) {
  if (!body.empty()) return EINVAL;
  device_.reset();
  return 0;
}

}  // namespace softhca::vfio_user
