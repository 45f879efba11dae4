// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace softhca::emulator {

/// Replaces what a device says of a stalled QP by what the whole fabric knows: a device sees that
/// no response comes, the fabric sees whose cable is unplugged, whose port is not ACTIVE, or that
/// the QP's peer is gone or in a state that does not answer. `hosts` is what hosts_status()
/// returns; of each QP that waits for its port or its peer, `stall` is rewritten where there is
/// more to say.
void name_stalls(nlohmann::json& hosts);

}  // namespace softhca::emulator
