// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "hw-model/ib/opcodes.h"

namespace softhca::fabric {

/// Linear forwarding table of a switch: unicast LID to port number (IBA 18.2.4.3.1). Port 0 stands
/// for "no route" here: the switch's own management port is not reached through this table.
class LidRoutes {
 public:
  std::uint8_t port(std::uint16_t lid) const { return lid < ports_.size() ? ports_[lid] : 0; }
  /// `lid`: a unicast LID.
  void set(std::uint16_t lid, std::uint8_t port) {
    if (lid >= ib::kMulticastLidFirst) return;
    if (lid >= ports_.size()) ports_.resize(lid + std::size_t{1});
    ports_[lid] = port;
  }
  void forget_port(std::uint8_t port) { std::replace(ports_.begin(), ports_.end(), port, kNone); }

 private:
  static constexpr std::uint8_t kNone = 0;
  std::vector<std::uint8_t> ports_;
};

}  // namespace softhca::fabric
