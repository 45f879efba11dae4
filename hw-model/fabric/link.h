// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <queue>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hw-model/fabric/counters.h"
#include "hw-model/ib/codec.h"
#include "hw-model/ib/packet.h"
#include "hw-model/ib/packet_pool.h"
#include "hw-model/ib/train.h"
#include "hw-model/runtime/clock.h"
#include "hw-model/runtime/ring.h"

namespace softhca::fabric {

/// Direction of a packet on the link between a host and its switch.
enum class Direction : std::uint8_t { from_host = 0, to_host = 1 };

/// Speed and length of a link. Zero rate: as fast as the engine runs.
struct LinkConfig {
  Nanoseconds delay = 0;  ///< Time of flight.
  std::uint64_t bytes_per_second = 0;
};

/// What happens to one packet on a link, as a fault hook decides.
struct Verdict {
  bool drop = false;
  bool duplicate = false;       ///< A second copy follows at once.
  Nanoseconds extra_delay = 0;  ///< Beyond the link's own; later packets may overtake.
  std::vector<std::uint32_t>
      flip_bits;  ///< Bit positions in the packet's bytes, LRH first; taken modulo its length.
  bool repair_vcrc = false;  ///< Damage inside a switch: the VCRC fits again, only the ICRC tells.
};

/// Decides over every packet of a link, before it flies. Deterministic given its own seed.
using FaultHook = std::function<Verdict(const ib::Packet&, Direction, Nanoseconds now)>;

/// A packet as it passes over a link.
struct LinkObservation {
  std::string_view link;
  Direction direction;
  Nanoseconds time;                  ///< On the device's clock.
  std::span<const std::byte> bytes;  ///< LRH to VCRC, damage included. Valid during the call.
};

/// Sees every packet of the links it is attached to (packet capture). Must not call back into the
/// fabric.
class LinkObserver {
 public:
  virtual ~LinkObserver() = default;
  virtual void observe(const LinkObservation& observation) = 0;
};

/// What the data and packet counters count of a packet or train: 4-byte words from LRH to ICRC.
inline TrafficCount count_of(const ib::Packet& packet) {
  return {(ib::wire_size(packet) - packet.count * ib::kVcrcSize) / 4, packet.count};
}

/// One direction of a link: a bounded queue in front of the wire, and what is in flight on it.
class Channel {
 public:
  /// Packets that wait at most before the sender is asked to stop; a sender that does not
  /// (responses, a switch that replicates) may fill up to kHardLimit, then packets are discarded.
  static constexpr std::size_t kSoftLimit = 256;
  static constexpr std::size_t kHardLimit = 16384;

  bool ready() const { return waiting_packets_ < kSoftLimit; }
  bool idle() const { return waiting_.empty() && flying_.empty(); }
  /// take_room_notice() may return true some time.
  bool owes_notice() const { return was_full_; }
  /// True once after ready() turned from false to true with room for half a queue.
  bool take_room_notice();

  /// False: discarded, the queue is at its hard limit.
  bool push(ib::PacketPtr packet);
  void clear();

  const ib::Packet* front() const { return waiting_.empty() ? nullptr : waiting_.front().get(); }
  /// In packets: a train counts as many as it stands for.
  std::size_t waiting() const { return waiting_packets_; }
  /// When the packet in front may enter the wire; kNever if none.
  Nanoseconds next_start() const { return waiting_.empty() ? kNever : wire_free_at_; }
  ib::PacketPtr pop();
  /// As pop(), and takes a train in front apart.
  ib::PacketPtr pop_single(ib::PacketPool& pool);

  /// Occupies the wire for a packet of `bytes` that starts at `now`; returns when its last byte
  /// arrives.
  Nanoseconds occupy(const LinkConfig& config, std::size_t bytes, Nanoseconds now);
  void fly(ib::PacketPtr packet, Nanoseconds arrival);
  Nanoseconds next_arrival() const { return flying_.empty() ? kNever : flying_.top().arrival; }
  ib::PacketPtr land();

 private:
  struct Flight {
    Nanoseconds arrival;
    std::uint64_t order;
    // A priority queue hands out const references only.
    mutable ib::PacketPtr packet;
    bool operator>(const Flight& other) const {
      return arrival != other.arrival ? arrival > other.arrival : order > other.order;
    }
  };

  Ring<ib::PacketPtr> waiting_;
  std::size_t waiting_packets_ = 0;
  std::priority_queue<Flight, std::vector<Flight>, std::greater<>> flying_;
  Nanoseconds wire_free_at_ = 0;
  std::uint64_t order_ = 0;
  bool was_full_ = false;
};

/// The link between a host and a switch port.
struct Link {
  explicit Link(ib::PacketPool& the_packets) : packets(the_packets) {}

  ib::PacketPool& packets;
  std::string name;
  bool up = true;
  LinkConfig config;
  FaultHook fault;
  std::vector<LinkObserver*> observers;
  Channel channels[2];  ///< By Direction.

  Channel& channel(Direction direction) { return channels[static_cast<unsigned>(direction)]; }
  const Channel& channel(Direction direction) const {
    return channels[static_cast<unsigned>(direction)];
  }

  /// Moves at most `max_packets` in one direction: into the wire while `may_start(packet)` agrees,
  /// off the wire into `deliver(packet)`. Counts for both ends, and discards what arrives damaged.
  /// Returns how many packets it took from the queue or the wire.
  template <typename MayStart, typename Deliver>
  std::size_t advance(Direction direction, Nanoseconds now, std::size_t max_packets,
                      PortCounters& sender, PortCounters& receiver, MayStart&& may_start,
                      Deliver&& deliver) {
    Channel& way = channel(direction);
    std::size_t moved = 0;
    for (; moved < max_packets && way.next_start() <= now && may_start(*way.front()); ++moved) {
      ib::PacketPtr packet = transmit(direction, now, sender, receiver);
      if (packet) deliver(std::move(packet));
    }
    for (; moved < max_packets && way.next_arrival() <= now; ++moved) {
      ib::PacketPtr packet = way.land();
      count_received(*packet, count_of(*packet), receiver);
      deliver(std::move(packet));
    }
    return moved;
  }
  void clear();
  /// A packet that enters this way now arrives at once, and nobody sees it pass.
  bool is_open(Direction direction) const {
    return up && !takes_apart() && channel(direction).idle();
  }

 private:
  /// Trains pass whole where nothing looks at their packets.
  bool takes_apart() const {
    return fault || !observers.empty() || config.bytes_per_second != 0 || config.delay != 0;
  }
  /// Sends the packet in front. Returns it if it arrives at once; else it flies, or is lost.
  ib::PacketPtr transmit(Direction direction, Nanoseconds now, PortCounters& sender,
                         PortCounters& receiver);
  ib::PacketPtr transmit_with_faults(ib::PacketPtr packet, Direction direction, Nanoseconds now,
                                     PortCounters& receiver);
  void show(Direction direction, Nanoseconds now, const ib::Packet& packet);
  void show_bytes(Direction direction, Nanoseconds now, std::span<const std::byte> bytes);
  static void count_received(const ib::Packet& packet, const TrafficCount& count,
                             PortCounters& receiver);

  std::vector<std::byte> scratch_;
};

}  // namespace softhca::fabric
