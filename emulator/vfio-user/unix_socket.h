// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <string>

#include "emulator/vfio-user/file_descriptor.h"
#include "emulator/vfio-user/result.h"

namespace softhca::vfio_user {

/// Binds and listens on a unix stream socket at `path` (close-on-exec, non-blocking, mode 0600).
/// Paths of any length: what does not fit a socket address goes through /proc/self/fd. A socket
/// file that nobody listens on is replaced; EADDRINUSE if somebody does.
Result<FileDescriptor> listen_unix(const std::string& path);

/// Connects to a unix stream socket at `path` of any length (close-on-exec, blocking).
Result<FileDescriptor> connect_unix(const std::string& path);

}  // namespace softhca::vfio_user
