// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>

#include "kernel-shim/protocol/protocol.h"

namespace softhca::shim {

/// 0 if `fd` is a memfd that holds [address, address + length) and may not shrink (else touching
/// its mapping would kill the device process). EINVAL: it is none; EFAULT: too short.
int check_shared(int fd, std::uint64_t address, std::uint64_t length);

/// The pages that lie wholly inside [address, address + length), which must not wrap; length 0:
/// none.
ShareRange pages_inside(std::uint64_t address, std::uint64_t length);

/// The whole pages around [address, address + length), which must not wrap.
ShareRange pages_of(std::uint64_t address, std::uint64_t length);

}  // namespace softhca::shim
