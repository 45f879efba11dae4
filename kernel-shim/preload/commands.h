// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include <sys/types.h>

/// System calls on a command descriptor, carried out by the daemon. Results and errno are those of
/// the system calls.
namespace softhca::shim::preload {

int command_ioctl(int fd, unsigned long request, void* argument);
ssize_t command_write(int fd, const void* data, std::size_t length);
void* command_mmap(int fd, void* address, std::size_t length, int protection, int flags,
                   off_t offset);

}  // namespace softhca::shim::preload
