// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "hw-model/ib/packet.h"

namespace softhca {
/// The transport's, whose requesters alone look inside: from one end of a way to the other a
/// message takes no call through an interface.
class Responder;
}  // namespace softhca

namespace softhca::ib {

/// What packets add to the data and packet counters of a port.
struct TrafficCount {
  std::uint64_t words = 0;  ///< Of 4 bytes, from LRH to ICRC.
  std::uint64_t packets = 0;
};

/// The counters of a port that packets of every kind of traffic add to (IBA 16.1.3.5).
struct PortTraffic {
  std::uint64_t xmit_data = 0;  ///< In units of 4 bytes, from LRH to ICRC.
  std::uint64_t rcv_data = 0;
  std::uint64_t unicast_xmit_packets = 0;
  std::uint64_t unicast_rcv_packets = 0;

  /// Unicast packets that went out, or came in.
  void transmitted(const TrafficCount& count) {
    xmit_data += count.words;
    unicast_xmit_packets += count.packets;
  }
  void received(const TrafficCount& count) {
    rcv_data += count.words;
    unicast_rcv_packets += count.packets;
  }
};

/// What has passed on a way: requests, and their answers.
struct WayTraffic {
  TrafficCount there;
  TrafficCount back;
};

/// What of a packet's headers decides where it gets.
struct Destination {
  std::uint16_t slid = 0;
  std::uint16_t dlid = 0;
  std::uint16_t pkey = 0;
  std::uint32_t qpn = 0;  ///< BTH.DestQP.
  bool has_grh = false;

  Destination() = default;
  explicit Destination(const PacketHeaders& packet)
      : slid(packet.path.slid),
        dlid(packet.path.dlid),
        pkey(packet.bth.pkey),
        qpn(packet.bth.dest_qp),
        has_grh(packet.path.has_grh) {}
};

/// A SEND or RDMA WRITE that is handed over as a whole, without packets.
struct DirectRequest {
  std::uint8_t opcode = 0;  ///< BTH.OpCode, an "only" one, however many packets it stands for.
  bool solicited = false;
  std::uint32_t psn = 0;      ///< Of the first packet.
  std::uint32_t packets = 1;  ///< At the requester's path MTU.
  std::uint32_t immediate = 0;
  std::uint64_t va = 0;  ///< RDMA WRITE: RETH.
  std::uint32_t rkey = 0;
  const std::byte* data = nullptr;  ///< Stays as it is during the call.
  std::uint32_t length = 0;         ///< At least 1.
};

/// The responder of a connection, and where the acknowledges that it sends go.
struct Answerer {
  Responder* responder = nullptr;
  Destination answers_to;
};

/// A way that Port::open_way() has found.
struct Way {
  Answerer peer;
  bool has_grh = false;     ///< Of requests.
  std::uint64_t epoch = 0;  ///< Port::way_epoch() when it was found.
  /// Ports on the way: the requester's, the switch's two, the responder's. Null where no port
  /// counts (an HCA to itself).
  std::array<PortTraffic*, 4> passed{};
};

/// Counts what has passed on an open way.
inline void count_way(const Way& way, const WayTraffic& traffic) {
  if (way.passed[0] == nullptr) return;
  // By value: the counters could be the same memory, for all that is known here.
  const auto pass = [&way](std::size_t at, TrafficCount sent, TrafficCount received) {
    PortTraffic& port = *way.passed[at];
    port.transmitted(sent);
    port.received(received);
  };
  const TrafficCount there = traffic.there;
  const TrafficCount back = traffic.back;
  pass(0, there, back);
  pass(1, back, there);
  pass(2, there, back);
  pass(3, back, there);
}

}  // namespace softhca::ib
