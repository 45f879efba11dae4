// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include "emulator/runtime/unique_fd.h"

namespace softhca::shim {

/// The page that tells applications how CQE timestamps become nanoseconds (struct
/// mlx5_ib_clock_info). The device's timer counts nanoseconds, so the page says "one cycle is one
/// nanosecond" and never changes. A sealed file that is open for reading; empty if the system has
/// no memory for it.
runtime::UniqueFd make_clock_info();

}  // namespace softhca::shim
