// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <span>

#include "hw-model/ib/mad_agent.h"

namespace softhca::fabric {

using SmpBytes = std::span<std::uint8_t, ib::kMadSize>;

/// What becomes of a directed route SMP at a node.
struct RouteStep {
  enum class Kind : std::uint8_t {
    drop,
    here,     ///< For this node's own agents (or manager).
    by_port,  ///< Out of `port`.
    by_lid,   ///< On to `lid` by the LID-routed part of its path.
  };
  Kind kind = Kind::drop;
  std::uint8_t port = 0;
  std::uint16_t lid = 0;  ///< kPermissiveLid: where the request came from.
};

/// True while the SMP is in the part of its path that goes by ports; outside of it LIDs lead it
/// (IBA 14.2.2.1).
bool in_directed_part(std::span<const std::uint8_t, ib::kMadSize> smp);

/// A directed route SMP arrives at a switch by `in_port`: the rules of IBA 14.2.2.2 (outbound) and
/// 14.2.2.4 (returning), hop pointer and return path updated. Never trusts the pointers.
RouteStep arrive_at_switch(SmpBytes smp, std::uint8_t in_port);
/// The same at an end node, which forwards nothing.
RouteStep arrive_at_end_node(SmpBytes smp, std::uint8_t in_port);

/// A response (or, with the direction bit clear, a request) leaves the node that made it: where to
/// (IBA 14.2.2.1, 14.2.2.3). For an end node any port is its only one.
RouteStep leave_node(SmpBytes smp);

}  // namespace softhca::fabric
