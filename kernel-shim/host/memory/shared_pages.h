// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>

#include "kernel-shim/protocol/protocol.h"

namespace softhca::shim {

/// The whole pages around [address, address + length), which must not wrap.
ShareRange pages_of(std::uint64_t address, std::uint64_t length);

}  // namespace softhca::shim
