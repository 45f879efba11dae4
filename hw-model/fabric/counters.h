// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>

#include "hw-model/ib/direct.h"

namespace softhca::fabric {

using ib::TrafficCount;

/// Counters of one port (IBA 16.1.3.5 PortCounters, 16.1.4.11 PortCountersExtended), as wide as the
/// host counts; the attributes saturate them to their width. Data counts are without the VCRC.
struct PortCounters : ib::PortTraffic {
  std::uint64_t symbol_error = 0;
  std::uint64_t link_error_recovery = 0;
  std::uint64_t link_downed = 0;
  std::uint64_t rcv_errors = 0;
  std::uint64_t rcv_remote_physical_errors = 0;
  std::uint64_t rcv_switch_relay_errors = 0;
  std::uint64_t xmit_discards = 0;
  std::uint64_t xmit_constraint_errors = 0;
  std::uint64_t rcv_constraint_errors = 0;
  std::uint64_t vl15_dropped = 0;
  std::uint64_t multicast_xmit_packets = 0;
  std::uint64_t multicast_rcv_packets = 0;
  std::uint64_t xmit_wait = 0;

  std::uint64_t xmit_packets() const { return unicast_xmit_packets + multicast_xmit_packets; }
  std::uint64_t rcv_packets() const { return unicast_rcv_packets + multicast_rcv_packets; }
};

}  // namespace softhca::fabric
