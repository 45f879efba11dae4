// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernel-shim/host/uverbs/call.h"
#include "kernel-shim/host/uverbs/context.h"

namespace softhca::shim {

/// Serves one RDMA_VERBS_IOCTL: `command` is the ioctl number, `body` what follows IoctlBody
/// (header, attributes, data), `fds` the descriptor inputs. Returns the errno that ioctl() fails
/// with, 0, or kRepeat; outputs are in call.reply.
int dispatch_ioctl(Context& context, Call& call, std::uint64_t command,
                   std::span<const std::byte> body, std::span<const int> fds);

/// Serves one write(2): `buffer` is what the application wrote. Returns as dispatch_ioctl().
int dispatch_write(Context& context, Call& call, std::span<const std::byte> buffer,
                   std::span<const int> fds);

/// Runs a write-style command whose parts are in `call` (DEVICE_INVOKE_WRITE and write(2) end
/// here).
int run_write_command(Context& context, Call& call, std::uint32_t command);

}  // namespace softhca::shim
