// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <vector>

#include "kernel-shim/host/device/command.h"
#include "kernel-shim/host/tree/tree.h"

namespace softhca::shim {

/// `ports/1/counters`: PMA PortCounters and PortCountersExtended of the device's own port
/// (IBA 16.1.3.5, 16.1.4.11), asked with MAD_IFC as mlx5_ib's process_mad does. Names that the
/// device does not answer are 0.
std::vector<CounterValue> read_port_counters(CommandInterface& commands);

/// `ports/1/hw_counters`: the Q counter set of this driver; all 0 where the device has none (`set`
/// 0).
std::vector<CounterValue> read_hw_counters(CommandInterface& commands, std::uint32_t set);

}  // namespace softhca::shim
