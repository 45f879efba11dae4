// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "hw-model/fabric/mad_outbox.h"
#include "hw-model/runtime/clock.h"

namespace softhca::fabric {

/// Sends answers of the subnet administration class that are longer than one datagram, by the
/// reliable multi-packet protocol (IBA 13.6): a window of segments that the receiver's ACKs open.
class RmppSender {
 public:
  /// Transfers at a time; a further one is refused.
  static constexpr std::size_t kMaxTransfers = 64;
  static constexpr std::size_t kMaxBytes = std::size_t{1} << 19;
  static constexpr Nanoseconds kAckTimeout = 500'000'000;
  static constexpr unsigned kTries = 5;

  explicit RmppSender(MadOutbox& outbox) : outbox_(outbox) {}

  /// Sends `data` under the headers of `response` (its first 56 bytes). One with the same
  /// transaction to the same place is replaced. False: too many or too much.
  bool start(const MadAddress& to, std::uint16_t slid, ib::MadIn response,
             std::vector<std::uint8_t> data, Nanoseconds now);
  /// An RMPP datagram that is not DATA: ACK, STOP or ABORT.
  void control(const MadAddress& from, ib::MadIn mad, Nanoseconds now);
  /// Repeats what was not acknowledged in time. Returns how many transfers moved.
  std::size_t step(Nanoseconds now);
  Nanoseconds next_deadline() const;
  std::size_t transfers() const { return transfers_.size(); }
  void clear() { transfers_.clear(); }

 private:
  struct Transfer {
    MadAddress to;
    std::uint16_t slid = 0;
    std::uint64_t transaction = 0;
    std::array<std::uint8_t, ib::kMadSize> headers{};
    std::vector<std::uint8_t> data;
    std::uint32_t segments = 1;
    std::uint32_t acknowledged = 0;
    std::uint32_t window_last = 1;
    std::uint32_t sent = 0;
    unsigned tries_left = kTries;
    Nanoseconds deadline = kNever;
  };

  void send_window(Transfer& transfer, Nanoseconds now);
  void send_segment(const Transfer& transfer, std::uint32_t number);
  std::vector<Transfer>::iterator find(const MadAddress& peer, std::uint64_t transaction);

  MadOutbox& outbox_;
  std::vector<Transfer> transfers_;
};

}  // namespace softhca::fabric
