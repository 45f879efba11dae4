// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "hw-model/ib/opcodes.h"

namespace softhca::fabric {

/// Ports of a switch; bit 0 is the management port.
using PortMask = std::bitset<256>;

/// Linear forwarding table of a switch: unicast LID to port number (IBA 18.2.4.3.1).
class LinearForwardingTable {
 public:
  /// What an entry without a route reads as.
  static constexpr std::uint8_t kNoRoute = 0xff;
  static constexpr std::uint16_t kCapacity = ib::kMulticastLidFirst;

  /// Where packets to `lid` go; kNoRoute: nowhere. LIDs above the top do not go anywhere.
  std::uint8_t port(std::uint16_t lid) const { return lid > top_ ? kNoRoute : entry(lid); }
  std::uint8_t entry(std::uint16_t lid) const {
    return lid < ports_.size() ? ports_[lid] : kNoRoute;
  }
  /// `lid`: a unicast LID; others are ignored.
  void set(std::uint16_t lid, std::uint8_t port) {
    if (lid >= kCapacity) return;
    if (lid >= ports_.size()) {
      if (port == kNoRoute) return;
      ports_.resize(lid + std::size_t{1}, kNoRoute);
    }
    ports_[lid] = port;
  }
  /// SwitchInfo.LinearFDBTop: the highest LID that is looked up.
  std::uint16_t top() const { return top_; }
  void set_top(std::uint16_t top) { top_ = top; }
  void clear() { ports_.clear(); }

 private:
  std::vector<std::uint8_t> ports_;
  std::uint16_t top_ = 0;
};

/// Multicast forwarding table of a switch: multicast LID to the ports that get a copy
/// (IBA 18.2.4.3.3).
class MulticastForwardingTable {
 public:
  /// Groups (SwitchInfo.MulticastFDBCap).
  static constexpr std::uint16_t kCapacity = 1024;

  static bool holds(std::uint16_t mlid) {
    return mlid >= ib::kMulticastLidFirst && mlid - ib::kMulticastLidFirst < kCapacity;
  }
  /// Null: nothing was ever set for this LID.
  const PortMask* ports(std::uint16_t mlid) const {
    const std::size_t at = std::size_t{mlid} - ib::kMulticastLidFirst;
    return holds(mlid) && at < entries_.size() ? &entries_[at] : nullptr;
  }
  /// `mlid`: one that the table holds(); others are ignored.
  void set(std::uint16_t mlid, const PortMask& ports) {
    if (!holds(mlid)) return;
    const std::size_t at = std::size_t{mlid} - ib::kMulticastLidFirst;
    if (at >= entries_.size()) {
      if (ports.none()) return;
      entries_.resize(at + 1);
    }
    entries_[at] = ports;
  }
  void clear() { entries_.clear(); }

 private:
  std::vector<PortMask> entries_;
};

}  // namespace softhca::fabric
