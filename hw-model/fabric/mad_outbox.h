// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <deque>

#include "hw-model/ib/mad_agent.h"
#include "hw-model/ib/opcodes.h"
#include "hw-model/ib/packet.h"

namespace softhca::fabric {

/// Where a management datagram came from, or goes to.
struct MadAddress {
  std::uint16_t lid = 0;
  std::uint32_t qp = ib::kQp0;
  std::uint8_t sl = 0;
  std::uint16_t pkey = 0xffff;
  bool has_grh = false;
  ib::Grh grh;               ///< As in a packet to that address.
  std::uint8_t in_port = 0;  ///< The switch port it came by.
};

/// Datagrams that the switch's management port sends, until the switch puts them on links.
class MadOutbox {
 public:
  struct Outgoing {
    ib::PacketPtr packet;
    std::uint8_t port;  ///< 0: by the forwarding table.
  };
  /// What waits at most; more is dropped, as by a port whose queue is full.
  static constexpr std::size_t kLimit = 4096;

  /// To a LID. A QP0 datagram goes to QP0, others from QP1 to `to.qp`.
  void send(const MadAddress& to, std::uint16_t slid, ib::MadIn mad);
  /// A directed route SMP, out of a port.
  void send_by_port(std::uint8_t port, ib::MadIn smp);

  bool empty() const { return waiting_.empty(); }
  Outgoing take() {
    Outgoing first = std::move(waiting_.front());
    waiting_.pop_front();
    return first;
  }

 private:
  void push(const MadAddress& to, std::uint16_t slid, std::uint8_t port, ib::MadIn mad);

  std::deque<Outgoing> waiting_;
  std::uint32_t psn_ = 0;
};

}  // namespace softhca::fabric
