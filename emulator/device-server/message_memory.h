// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "emulator/vfio-user/server.h"
#include "hw-model/memory/dma_space.h"
#include "hw-model/runtime/clock.h"

namespace softhca::emulator {

/// Client memory that was mapped without a descriptor: accesses become DMA_READ and DMA_WRITE
/// messages. Offsets are I/O virtual addresses.
///
/// Writes are posted, as on PCIe: they are sent in order, succeed at once, and what the client
/// answers later changes nothing. Interrupts wait for them (OrderedInterrupts). Between this memory
/// and memory that the device reaches directly there is no order, so a driver must not keep its
/// queues in one and their data in the other.
///
/// Reads are `pending` until the answer is there. The device repeats a parked operation from its
/// start, so answers are kept for operations that need several; but not beyond their truth: a write
/// to the same bytes, a register access by which the driver may announce news, kLifetime, or a
/// device without work ends them, and an operation that still needs them asks again.
class MessageMemory final : public DmaBacking, public std::enable_shared_from_this<MessageMemory> {
 public:
  /// Long for a chain of round trips, short for records that drivers update without ringing a
  /// register.
  static constexpr Nanoseconds kLifetime = 10'000'000;

  /// `progress` is called whenever a parked operation may get further or a write is through.
  MessageMemory(vfio_user::Server& server, const Clock& clock, std::function<void()> progress)
      : server_(server), clock_(clock), progress_(std::move(progress)) {}

  DmaStatus read(std::uint64_t iova, void* to, std::size_t length) override;
  DmaStatus write(std::uint64_t iova, const void* from, std::size_t length) override;

  /// The driver may have changed memory: bytes read so far, or being read, are of the past.
  void invalidate_reads();
  /// The device has no work left: forgets what nobody waits for.
  void settle();
  /// Output space or replies have freed what an earlier request could not get.
  void retry_refused();

  /// Number of the latest write.
  std::uint64_t last_write() const { return last_write_; }
  /// True if the client has done every write up to that number.
  bool written(std::uint64_t number) const {
    return unacknowledged_.empty() || *unacknowledged_.begin() > number;
  }

 private:
  struct Range {
    std::uint64_t iova = 0;
    std::uint64_t length = 0;
    bool operator<(const Range& other) const {
      return iova != other.iova ? iova < other.iova : length < other.length;
    }
    bool overlaps(const Range& other) const {
      return iova < other.iova + other.length && other.iova < iova + length;
    }
  };
  struct Read {
    bool done = false;
    bool stale = false;  ///< To be asked again when the answer comes.
    std::errc error{};
    std::vector<std::byte> bytes;
    Nanoseconds arrived = 0;
  };

  DmaStatus read_chunk(Range range, std::span<std::byte> to);
  DmaStatus write_chunk(Range range, std::span<const std::byte> from);
  DmaStatus refused(std::errc error);
  void finish_read(Range range, std::errc error, std::span<const std::byte> data);
  void finish_write(std::uint64_t number);
  /// Ends the reads for which `gone(range)` holds.
  template <typename Gone>
  void end_reads(Gone&& gone);

  vfio_user::Server& server_;
  const Clock& clock_;
  std::function<void()> progress_;
  std::map<Range, Read> reads_;
  std::set<std::uint64_t> unacknowledged_;
  std::uint64_t last_write_ = 0;
  std::size_t reads_in_flight_ = 0;
  bool refused_ = false;
};

}  // namespace softhca::emulator
