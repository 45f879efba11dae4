// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>

#include "kernel-shim/protocol/mkey_state_change.h"

namespace softhca::shim::preload {

/// Maps a context's page of state records, and the hints of its device. None where the device has
/// no hints.
MkeyStateChanger map_mkey_states(int fd);
void unmap_mkey_states(const MkeyStateChanger& changer);

/// DEREG_MR on behalf of this library.
void deregister_region(int fd, std::uint32_t handle);

}  // namespace softhca::shim::preload
