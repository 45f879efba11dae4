// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <string_view>

namespace softhca::emulator {

/// EUI-64 of a host's HCA: the same for the same fabric and host name on every machine. Locally
/// administered prefix 06:53:46 ("SF"), then 40 bits of a hash of both names; `attempt` picks
/// another when one is taken.
std::uint64_t host_guid(std::string_view fabric, std::string_view host, unsigned attempt = 0);

}  // namespace softhca::emulator
