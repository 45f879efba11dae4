// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "hw-model/fabric/counters.h"
#include "hw-model/ib/direct.h"
#include "hw-model/ib/packet.h"

namespace softhca::fabric {

class HcaPort;
class Subnet;
struct Spoke;

/// The short way of a packet: from the sending HCA through two links and the switch to the other
/// HCA in one call, where none of them would hold, show, delay, damage or lose it. Every rule that
/// the long way checks is checked here, and the same counters count; where a packet would not get
/// through, the long way tells why.
class CutThrough {
 public:
  explicit CutThrough(Subnet& subnet) : subnet_(subnet) {}

  /// True: the packet has been received. `from`: where it comes from, a port that is ACTIVE.
  bool carry(HcaPort& from, std::uint8_t from_number, ib::Packet& packet);
  /// Finds the responder at the other end, where packets there and its answers back could be
  /// carried. False: they could not.
  bool open(HcaPort& from, std::uint8_t from_number, const ib::Destination& there, ib::Way& way);
  /// Everyone who received something answers it (ib::PortClient::delivered()).
  void end_turn() {
    if (!receivers_.empty()) end_deliveries();
  }
  /// True once after packets were carried: their receivers may have work now.
  bool take_activity() { return std::exchange(active_, false); }
  bool active() const { return active_; }
  /// Neither take_activity() nor end_turn() has something to do.
  bool at_rest() const { return !active_ && receivers_.empty(); }
  /// A host goes.
  void forget(const HcaPort& port);

 private:
  void end_deliveries();
  Spoke* find_way(const HcaPort& from, std::uint8_t from_number, const ib::Destination& there);

  Subnet& subnet_;
  std::vector<HcaPort*> receivers_;  ///< Since the last end_turn(); each once.
  bool active_ = false;
};

}  // namespace softhca::fabric
