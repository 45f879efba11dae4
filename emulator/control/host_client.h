// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <string>

#include "emulator/runtime/result.h"
#include "kernel-shim/protocol/protocol.h"

namespace softhca::emulator {

/// Sends one control request to a virtual host's daemon over its `kernel_socket`, and waits up to 5
/// s for the answer. ENOENT, ECONNREFUSED: no daemon runs; ECONNRESET: it is just ending; EPROTO: a
/// daemon of another version.
runtime::Result<shim::ControlReply> host_control(const std::string& kernel_socket,
                                                 shim::ControlAction action);

/// Makes `socket`, connected to a daemon's kernel socket, a lease: the virtual host stays up until
/// its last copy is closed. Errors as host_control().
runtime::Result<runtime::Done> take_lease(int socket);

}  // namespace softhca::emulator
