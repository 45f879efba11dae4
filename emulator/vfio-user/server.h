// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "emulator/vfio-user/file_descriptor.h"
#include "emulator/vfio-user/protocol.h"

namespace softhca::vfio_user {

/// A region as the device presents it.
struct ServerRegion {
  std::uint64_t size = 0;  ///< 0: not there.
  bool readable = false;
  bool writable = false;
  /// Memory behind `mmap_areas` (or the whole region if there are none), -1 if it cannot be mapped;
  /// borrowed.
  int fd = -1;
  std::uint64_t fd_offset = 0;  ///< Offset in `fd` of the region's byte 0 (may wrap below 0).
  std::vector<MmapArea> mmap_areas;
  std::optional<CapRegionType> type;  ///< Wanted for regions from kPciNumRegions on.
};

struct ServerIoEventFd {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  int fd = -1;  ///< Borrowed.
  std::uint32_t flags = 0;
  std::uint64_t datamatch = 0;
};

struct ServerIrq {
  std::uint32_t count = 0;
  std::uint32_t flags = 0;  ///< kIrqEventFd...
};

/// A validated SET_IRQS: [start, start + count) lies inside the index, except that start = count =
/// 0 with kIrqSetDataNone stands for "all".
struct SetIrqsRequest {
  std::uint32_t index = 0;
  std::uint32_t start = 0;
  std::uint32_t count = 0;
  std::uint32_t data = 0;               ///< One of kIrqSetData*.
  std::uint32_t action = 0;             ///< One of kIrqSetAction*.
  std::span<const std::uint8_t> flags;  ///< kIrqSetDataBool: `count` bytes.
  std::vector<FileDescriptor>
      eventfds;  ///< kIrqSetDataEventFd: `count` of them, or none to detach.
};

/// A map of a non-empty range that does not wrap; overlap is the device's to check.
struct DmaMapRequest {
  std::uint64_t iova = 0;
  std::uint64_t size = 0;
  bool readable = false;
  bool writable = false;
  FileDescriptor fd;         ///< None: reach it by Server::dma_read and dma_write.
  std::uint64_t offset = 0;  ///< offset + size does not wrap.
};

/// What a vfio-user server serves. Called from within Server::on_readable(); a returned std::errc
/// other than {} goes to the client as errno.
class ServerDevice {
 public:
  virtual ~ServerDevice() = default;

  /// Asked once per connection. Their number is at least kPciNumRegions / kPciNumIrqs; the fd and
  /// areas must stay valid while connected.
  virtual std::vector<ServerRegion> regions() = 0;
  virtual std::vector<ServerIrq> irqs() = 0;
  virtual std::vector<ServerIoEventFd> region_io_fds(std::uint32_t index) = 0;

  /// Non-empty and inside a region that allows it.
  virtual std::errc region_read(std::uint32_t region, std::uint64_t offset,
                                std::span<std::byte> to) = 0;
  virtual std::errc region_write(std::uint32_t region, std::uint64_t offset,
                                 std::span<const std::byte> from) = 0;
  virtual std::errc set_irqs(SetIrqsRequest request) = 0;
  virtual std::errc dma_map(DmaMapRequest request) = 0;
  /// When this returns no reference to the range is left.
  virtual std::errc dma_unmap(std::uint64_t iova, std::uint64_t size) = 0;
  virtual void dma_unmap_all() = 0;
  virtual void reset() = 0;

  /// The connection is gone, whoever ended it: drop maps and interrupts. `reason` is one line for
  /// the log.
  virtual void disconnected(const std::string& reason) = 0;
};

struct ServerLimits {
  std::uint64_t max_data_transfer = kDefaultMaxDataTransfer;
  std::uint32_t max_message_fds = 16;
  std::uint32_t max_dma_maps = kDefaultMaxDmaMaps;
  /// Bytes that may wait for a client that does not read; beyond it is disconnected.
  std::size_t max_output = 16U << 20;
  /// Messages handled and about how many bytes are read by one on_readable(), so that one client
  /// does not starve others.
  unsigned messages_per_call = 256;
  std::uint64_t bytes_per_call = 1U << 20;
};

/// Serves one device to one client at a time. Never blocks and owns no loop: the runner polls
/// listen_fd() while nobody is connected, connection_fd() (for input, and for output while
/// wants_write()) while somebody is, and calls on_readable() / on_writable(). The sockets are
/// level-triggered friendly.
class Server {
 public:
  explicit Server(ServerDevice& device, ServerLimits limits = {});
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// Takes over a listening, non-blocking unix stream socket.
  void attach(FileDescriptor listening);
  /// Takes over a connected socket instead of accepting one; only while nobody is connected.
  void adopt(FileDescriptor connection);

  int listen_fd() const;
  int connection_fd() const;  ///< -1: nobody is connected.
  bool wants_write() const;

  /// Accepts a waiting client if nobody is connected, and handles what has arrived. Clients of
  /// other users than this process's and root are hung up on. True if more may be there than one
  /// call handles.
  bool on_readable();
  void on_writable();
  void disconnect(const std::string& reason);

  /// Outcome of a request to the client: `error` is {}, or the client's errno, or connection_reset
  /// when the connection ended first. `data` (reads) is valid during the call only. Called from
  /// on_readable() or, with connection_reset, from whatever ended the connection.
  using DmaCompletion = std::function<void(std::errc error, std::span<const std::byte> data)>;
  /// Asks the client for memory mapped without a descriptor. Returns not_connected, no_buffer_space
  /// (too many requests in flight, try again after a completion) or message_size (over
  /// max_dma_transfer()) without calling `done`.
  std::errc dma_read(std::uint64_t iova, std::uint64_t length, DmaCompletion done);
  std::errc dma_write(std::uint64_t iova, std::span<const std::byte> from, DmaCompletion done);
  std::uint64_t max_dma_transfer() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace softhca::vfio_user
