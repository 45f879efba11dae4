// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "hw-model/ib/packet.h"

namespace softhca::ib {

/// What packets add to the data and packet counters of a port.
struct TrafficCount {
  std::uint64_t words = 0;  ///< Of 4 bytes, from LRH to ICRC.
  std::uint64_t packets = 0;
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

/// The responder of a reliable connection, at the other end of a way that no packet needs to be
/// made for (Port::open_way()). It takes what packets would certainly succeed with, and checks for
/// that all that it checks of packets; whatever else is refused, with nothing changed that packets
/// would not change, and those that are then sent meet what the refusal was for.
class DirectReceiver {
 public:
  virtual ~DirectReceiver() = default;
  /// Where the acknowledges that it sends go.
  virtual Destination answers_to() const = 0;
  /// True: executed, and acknowledged by a positive ACK of this request.
  virtual bool execute(const DirectRequest& request) = 0;
  /// RDMA READ of `length` >= 1 bytes with a response of `packets` packets at the requester's path
  /// MTU. Not null: accepted; the response is what lies there.
  virtual const std::byte* read(std::uint32_t psn, std::uint32_t packets, std::uint64_t va,
                                std::uint32_t rkey, std::uint32_t length) = 0;
};

/// A way that Port::open_way() has found.
struct Way {
  DirectReceiver* receiver = nullptr;
  bool has_grh = false;           ///< Of requests.
  bool answer_has_grh = false;    ///< Of answers.
  std::uint64_t epoch = 0;        ///< Port::way_epoch() when it was found.
  std::array<void*, 4> passed{};  ///< The port's: what it counts in.
};

}  // namespace softhca::ib
