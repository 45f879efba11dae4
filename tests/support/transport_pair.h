// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "tests/support/test_host.h"

namespace softhca::transport_test {

/// What the link shall do with one packet.
struct PacketFate {
  bool drop = false;
  unsigned copies = 1;          ///< 2: duplicated.
  Nanoseconds extra_delay = 0;  ///< More than the next packet's: reordered.
};

/// Two hosts joined by a wire under virtual time. LID 1 is `a`, LID 2 is `b`; packets to a host's
/// own LID come back to it.
class TransportPair {
 public:
  static constexpr Nanoseconds kLatency = 1'000;

  explicit TransportPair(std::size_t memory_size = 24 << 20);

  /// Called for every packet that enters the wire; may change the packet.
  std::function<PacketFate(ib::Packet&)> fate;
  /// Called for every packet that is delivered.
  std::function<void(const ib::Packet&)> on_delivery;

  /// Runs until `done()` or nothing can happen any more, or `limit` of virtual time has gone by.
  /// True if done.
  bool run_until(const std::function<bool()>& done, Nanoseconds limit = 60'000'000'000);
  /// Runs until nothing can happen any more without time passing beyond `limit`.
  void run(Nanoseconds limit = 60'000'000'000);
  /// Lets `duration` pass.
  void run_for(Nanoseconds duration);
  std::size_t in_flight() const { return wire_.size(); }
  std::uint64_t packets() const { return packets_; }

  VirtualClock clock;
  TestHost a;
  TestHost b;
  TransportBudget budget;

 private:
  void enter_wire(TestHost& from, ib::PacketPtr packet);
  void schedule_packet(TestHost& to, Nanoseconds when, ib::PacketPtr packet);
  bool step_hosts();
  void deliver_due();
  Nanoseconds next_time() const;

  struct InFlight {
    TestHost* to;
    ib::PacketPtr packet;
  };
  std::map<std::pair<Nanoseconds, std::uint64_t>, InFlight> wire_;
  std::uint64_t packets_ = 0;
};

/// A connected pair of QPs with their CQs and one registered buffer on each side.
struct ConnectedQps {
  static constexpr std::size_t kBufferSize = 2 << 20;

  explicit ConnectedQps(TransportPair& pair, TestQpOptions options = {},
                        std::uint8_t log_cq_size = 10,
                        const std::function<void(TestQp&, TestQp&)>& before_connect = {});

  Sge a_sge(std::uint64_t offset, std::uint32_t length) const {
    return {a_buffer + offset, length, a_key};
  }
  Sge b_sge(std::uint64_t offset, std::uint32_t length) const {
    return {b_buffer + offset, length, b_key};
  }

  TransportPair& pair;
  TestCq a_cq;
  TestCq b_cq;
  TestQp a;
  TestQp b;
  std::uint64_t a_buffer;
  std::uint64_t b_buffer;
  std::uint32_t a_key;
  std::uint32_t b_key;
};

}  // namespace softhca::transport_test
