// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <span>

#include "hw-model/ib/mad_agent.h"

namespace softhca::fabric {

/// Directed-route rules at the node that a request is for (IBA 14.2.2.2): checks that the route
/// ends here and notes the port it came in by. False: the SMP is to be dropped.
bool arrive_at_end_node(std::span<std::uint8_t, ib::kMadSize> smp, std::uint8_t in_port);

/// The same for the response as it leaves the node that answered (IBA 14.2.2.3).
void leave_end_node(std::span<std::uint8_t, ib::kMadSize> smp);

}  // namespace softhca::fabric
