// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "hw-model/fabric/counters.h"
#include "hw-model/ib/mad.h"

namespace softhca::fabric {

/// Executes Get or Set of the performance management class (IBA chapter 16) on `data`, 192 bytes.
/// `find(port_select)` names the port's counters, null if there is no such port; PortSelect 0xff
/// stands for `all`, whose counters are added up. Returns the status.
std::uint16_t process_perf(ib::MadMethod method, std::uint16_t attribute, std::uint8_t* data,
                           const std::function<PortCounters*(std::uint8_t)>& find,
                           std::span<PortCounters* const> all);

}  // namespace softhca::fabric
