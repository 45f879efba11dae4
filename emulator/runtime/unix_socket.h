// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <string>

#include <sys/types.h>

#include "emulator/runtime/result.h"
#include "emulator/runtime/unique_fd.h"

namespace softhca::runtime {

/// Unix sockets by path name, of any length that the file system allows: what does not fit sun_path
/// (108 bytes) is reached through /proc/self/fd/<folder>/<name>.

/// Binds and listens; CLOEXEC and non-blocking, mode 0600. A file that is already there is removed
/// first: the caller holds the lock that says that nobody serves it. EISDIR, EPERM: what is there
/// is a directory, or another user's; it is left alone. `type`: SOCK_STREAM or SOCK_SEQPACKET.
Result<UniqueFd> listen_unix(const std::string& path, int type, int backlog = 64);

/// Connects; CLOEXEC, blocking. ENOENT: no such socket; ECONNREFUSED: nobody serves it (stale
/// file); EISDIR, EPERM: it is a directory, or another user's that we may not connect to.
Result<UniqueFd> connect_unix(const std::string& path, int type);

/// Process at the other end (for a connecting side: the one that listens), or -1. Verified by the
/// kernel.
pid_t peer_pid(int socket);
/// True if the other end runs as the calling user or as root.
bool peer_is_trusted(int socket);

}  // namespace softhca::runtime
