// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <type_traits>
#include <vector>

#include "emulator/vfio-user/file_descriptor.h"
#include "emulator/vfio-user/protocol.h"
#include "emulator/vfio-user/result.h"

namespace softhca::vfio_user {

/// Memory of the client that was mapped without a descriptor: the server asks for its bytes. Called
/// on the thread that waits for a reply or calls Client::serve(); must not call the client.
class DmaMemory {
 public:
  virtual ~DmaMemory() = default;
  /// {} or the errno to answer.
  virtual std::errc dma_read(std::uint64_t iova, std::span<std::byte> to) = 0;
  virtual std::errc dma_write(std::uint64_t iova, std::span<const std::byte> from) = 0;
};

struct ClientOptions {
  /// For each step that waits: connect, send, reply.
  std::chrono::milliseconds timeout{5000};
  std::uint32_t max_message_fds = 16;
  std::uint64_t max_data_transfer = kDefaultMaxDataTransfer;
  DmaMemory* dma_memory = nullptr;  ///< Null: dma_read and dma_write are answered with EINVAL.
};

/// Region as the server describes it.
struct ClientRegion {
  std::uint64_t size = 0;
  std::uint32_t flags = 0;      ///< kRegion*
  std::uint64_t fd_offset = 0;  ///< mmap() offset of the region's byte 0.
  FileDescriptor fd;            ///< Valid if flags has kRegionMmap.
  /// What may be mapped, each inside the region; the whole region if the server names no areas.
  std::vector<MmapArea> mmap_areas;
  std::optional<CapRegionType> type;
};

struct ClientIoEventFd {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  std::uint32_t flags = 0;
  std::uint64_t datamatch = 0;
  FileDescriptor fd;
};

/// `posted` writes are sent without waiting for, or getting, an answer. The server still does them
/// before anything that is sent later.
enum class Posting : std::uint8_t { wait, posted };

/// Client of a vfio-user server. Every call sends one command and waits for its reply at most
/// ClientOptions::timeout. Calls may come from any thread; they are done one at a time. After an
/// error of kind timeout, disconnected or protocol the socket is shut down and every later call
/// fails with `disconnected`.
class Client {
 public:
  /// Connects and negotiates version 0.0.
  static Result<std::unique_ptr<Client>> connect(const std::string& path,
                                                 ClientOptions options = {});
  static Result<std::unique_ptr<Client>> connect(FileDescriptor socket, ClientOptions options = {});
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  /// The socket: readable when the server asks for memory (call serve()) or has closed the
  /// connection.
  int fd() const;
  /// Answers what the server has asked for so far, without waiting.
  Status serve();

  Result<DeviceInfoBody> device_info();
  Result<ClientRegion> region_info(std::uint32_t index);
  Result<IrqInfoBody> irq_info(std::uint32_t index);
  Result<std::vector<ClientIoEventFd>> region_io_fds(std::uint32_t index);

  /// At most the server's max_data_xfer_size bytes.
  Status region_read(std::uint32_t region, std::uint64_t offset, std::span<std::byte> to);
  Status region_write(std::uint32_t region, std::uint64_t offset, std::span<const std::byte> from,
                      Posting posting = Posting::wait);

  /// One access of the register's width; `value` is stored as it lies in memory (byte order is the
  /// caller's).
  template <typename T>
  Result<T> read_register(std::uint32_t region, std::uint64_t offset) {
    static_assert(std::is_unsigned_v<T> && sizeof(T) <= 8);
    T value{};
    Status status = region_read(region, offset, std::as_writable_bytes(std::span(&value, 1)));
    if (!status) return status.error();
    return value;
  }
  template <typename T>
  Status write_register(std::uint32_t region, std::uint64_t offset, T value,
                        Posting posting = Posting::wait) {
    static_assert(std::is_unsigned_v<T> && sizeof(T) <= 8);
    return region_write(region, offset, std::as_bytes(std::span(&value, 1)), posting);
  }

  /// Attaches `eventfds` (borrowed) to interrupts start, start + 1, ... of `index`, in as many
  /// messages as the server's descriptor limit asks for.
  Status set_irq_eventfds(std::uint32_t index, std::uint32_t start, std::span<const int> eventfds);
  /// Detaches interrupts [start, start + count).
  Status detach_irqs(std::uint32_t index, std::uint32_t start, std::uint32_t count);
  /// Disables every interrupt of `index`.
  Status disable_irqs(std::uint32_t index);
  /// SET_IRQS with data none: `action` is one of kIrqSetAction*.
  Status act_on_irqs(std::uint32_t index, std::uint32_t action, std::uint32_t start,
                     std::uint32_t count);

  /// Gives the device [iova, iova + size). `fd` (borrowed; -1 for none) holds it from byte `offset`
  /// on; `flags` is kDmaRead, kDmaWrite or both. Refused with EEXIST if it overlaps a map, EINVAL
  /// if the range is empty or wraps, ENOSPC over max_dma_maps.
  Status dma_map(std::uint64_t iova, std::uint64_t size, std::uint32_t flags, int fd,
                 std::uint64_t offset);
  /// The same without waiting for the reply, which settle() does; what is sent later reaches the
  /// device after the map.
  Status start_dma_map(std::uint64_t iova, std::uint64_t size, std::uint32_t flags, int fd,
                       std::uint64_t offset);
  /// Waits for what was started, whatever becomes of it.
  Status await_started();
  /// The same: the first refusal, or success.
  Status settle();
  bool has_started() const;
  /// Takes it back, exactly as mapped; the device does not touch it after the return.
  Status dma_unmap(std::uint64_t iova, std::uint64_t size);
  Status dma_unmap_all();

  Status reset();

  /// What the server announced.
  std::uint32_t server_max_fds() const;
  std::uint64_t server_max_data() const;

 private:
  struct Impl;
  explicit Client(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace softhca::vfio_user
