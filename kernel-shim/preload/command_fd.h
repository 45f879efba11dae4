// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include <sys/types.h>

/// Command descriptors: connected sockets to the host's daemon that play /dev/infiniband/uverbsN.
///
/// A descriptor is recognised by what it is, not by how this process came to it, so that copies
/// made by dup(), fork(), exec() or SCM_RIGHTS count as well: a SOCK_SEQPACKET socket whose peer is
/// bound to a kernel.sock. Inodes of sockets once recognised are remembered, because the peer's
/// name is gone when the daemon dies.
namespace softhca::shim::preload {

/// Opens device N: connects and introduces this process. -1 and errno as open() gives them; ENODEV
/// when no daemon serves the host.
int open_device(int index, int flags);

/// Asks the daemon to bring the files of its tree up to date that change by themselves (counters).
void refresh_tree();

/// Tells the daemon that this process has discarded shared pages.
void ask_for_sweep();

/// True if the socket `fd` with this inode number is a command descriptor. errno is kept.
bool is_command_socket(int fd, std::uint64_t inode);
bool is_command_fd(int fd);

/// is_command_fd() only for descriptors that open_device(), fstat() or ioctl() has met: costs a
/// memory access for all others.
bool is_known_command_fd(int fd);

/// False if another process opened the command descriptor, as far as is remembered.
bool opened_by_this_process(int fd);
/// Inode number of one that this process opened, as far as is remembered; 0: it is none.
std::uint64_t inode_of_own(int fd);
/// Inode number of whatever it is; 0: it is not open.
std::uint64_t inode_of(int fd);

/// st_rdev of command descriptors.
std::uint64_t command_device_number();

}  // namespace softhca::shim::preload
