// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "emulator/vfio-user/server.h"
#include "hw-model/memory/dma_space.h"

namespace softhca::emulator {

/// Client memory that was mapped without a descriptor: each access becomes DMA_READ and DMA_WRITE
/// messages and is `pending` until they are answered. Offsets are I/O virtual addresses.
///
/// The device repeats a parked operation from its start, so answers are kept until nothing is in
/// flight and the device has no work left: an operation that needs several accesses then finds the
/// earlier ones done. Answers must not outlive their truth: whatever may have changed memory since
/// (a write of the device, a register access by which the driver announces news) takes them away,
/// and the operation asks again.
class MessageMemory final : public DmaBacking, public std::enable_shared_from_this<MessageMemory> {
 public:
  /// `arrived` is called whenever a parked operation may get further.
  MessageMemory(vfio_user::Server& server, std::function<void()> arrived)
      : server_(server), arrived_(std::move(arrived)) {}

  DmaStatus read(std::uint64_t iova, void* to, std::size_t length) override;
  DmaStatus write(std::uint64_t iova, const void* from, std::size_t length) override;

  /// The driver may have changed memory: bytes read so far, or being read, are of the past.
  void invalidate_reads();
  /// The device has no work left: forgets what nobody waits for.
  void settle();
  /// True while a request is unanswered.
  bool in_flight() const { return in_flight_ != 0; }
  /// Output space or replies have freed what an earlier request could not get.
  void retry_refused();

 private:
  struct Range {
    std::uint64_t iova = 0;
    std::uint64_t length = 0;
    auto operator<=>(const Range&) const = default;
    bool overlaps(const Range& other) const {
      return iova < other.iova + other.length && other.iova < iova + length;
    }
  };
  struct Access {
    bool done = false;
    bool stale = false;  ///< To be asked again when the answer comes.
    std::errc error{};
    std::vector<std::byte> bytes;  ///< Read: the answer. Write: what was written.
  };
  using Accesses = std::map<Range, Access>;

  DmaStatus read_chunk(Range range, std::span<std::byte> to);
  DmaStatus write_chunk(Range range, std::span<const std::byte> from);
  DmaStatus refused(std::errc error);
  void finish(Accesses& accesses, Range range, std::errc error, std::span<const std::byte> data);
  void forget_overlapping(Range range);

  vfio_user::Server& server_;
  std::function<void()> arrived_;
  Accesses reads_;
  Accesses writes_;
  std::size_t in_flight_ = 0;
  bool refused_ = false;
};

}  // namespace softhca::emulator
