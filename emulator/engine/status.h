// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "emulator/engine/device_set.h"

namespace softhca::emulator {

/// Array with an object for each host, for `softhca status`: `name`, `socket`, `connected`,
/// `persistent`, `mapped_uars`, `blue_flame`, `node_guid`; `port` (state, LID, rate, counters, …);
/// `device` (Function::status_json()).
nlohmann::json hosts_status(DeviceSet& devices);

}  // namespace softhca::emulator
