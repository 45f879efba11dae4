// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include "kernel-shim/host/uverbs/method.h"
#include "kernel-shim/protocol/protocol.h"

namespace softhca::shim {

inline constexpr AttrSpec kDoorbellHintsAttributes[] = {
    attr_out<std::uint64_t>(kAttrHintsOffset, kMandatory),
    attr_out<std::uint64_t>(kAttrHintsLength, kMandatory),
    attr_new_fd(kAttrHintsWakeFd),
};

/// Softhca's own method (protocol.h). EOPNOTSUPP: the device has no hints region; ring UARs only.
int get_doorbell_hints(Context& context, Call& call);

}  // namespace softhca::shim
