// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>

#include "hw-model/prm/eqe.h"
#include "hw-model/queues/queue_buffer.h"
#include "hw-model/runtime/interrupts.h"

namespace softhca {

using prm::EventType;

struct EqParams {
  QueueBuffer buffer;
  std::uint8_t log_size = 0;     ///< Entries of 64 bytes.
  std::uint16_t vector = 0;      ///< MSI-X vector.
  std::uint64_t event_mask = 0;  ///< Bit n: event type n comes here (CREATE_EQ.event_bitmask); for
                                 ///< the owner's routing, not looked at by the queue.
  /// Arms cannot be seen (EQ on a mapped UAR): every event raises the interrupt, overrun is not
  /// checked.
  bool always_armed = false;
};

/// Event queue: the device writes EQEs, the driver moves the consumer index and arms through its
/// UAR page.
class EventQueue {
 public:
  static constexpr std::size_t kEntrySize = 64;
  static constexpr std::size_t kDataSize = 28;

  EventQueue(std::uint32_t number, EqParams params, InterruptSink& interrupts);

  std::uint32_t number() const { return number_; }
  const EqParams& params() const { return params_; }

  /// Writes an EQE and raises the interrupt if the queue is armed. `data` goes to EQE byte 0x20;
  /// missing bytes are 0. An EQE that finds the queue full is lost and overrun() becomes true.
  void post(EventType type, std::uint8_t subtype, std::span<const std::uint8_t> data);
  /// Completion event of a CQ (CQN in the last data word).
  void post_completion(std::uint32_t cqn);

  /// UAR registers 0x40 (arm) and 0x48: consumer index, modulo 2^24.
  void doorbell(std::uint32_t consumer_index, bool arm);
  /// EQEs whose memory was pending are written.
  void memory_arrived();

  std::uint32_t producer_index() const { return producer_; }
  std::uint32_t consumer_index() const { return consumer_; }
  bool armed() const { return armed_; }
  bool overrun() const { return overrun_; }

 private:
  using Entry = std::array<std::uint8_t, kEntrySize>;
  bool write(Entry entry);
  void notify();

  std::uint32_t number_;
  EqParams params_;
  InterruptSink& interrupts_;
  std::uint32_t producer_ = 0;  ///< 24 bits.
  std::uint32_t consumer_ = 0;  ///< 24 bits.
  bool armed_ = false;
  bool overrun_ = false;
  std::deque<Entry> waiting_;  ///< Behind pending memory; at most the size of the queue.
};

}  // namespace softhca
