// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <atomic>

/// Descriptors of this library inside the application. Programs close what they did not open
/// (daemons, shells, closefrom()) and choose numbers freely (dup2()); the interposers of close()
/// and its relatives leave guarded ones alone and answer as if the number were not in use.
namespace softhca::shim::preload {

/// Holds the number of a descriptor of ours, -1 for none. The number changes when the application
/// wants it for itself. Lives as long as the library, or until unguard().
using GuardedFd = std::atomic<int>;

/// Puts `fd` into `holder` and guards it. With `move_up` it first goes to a high number, where
/// redirections of shells do not meet it. When too many are guarded, it is merely held.
void guard(GuardedFd& holder, int fd, bool move_up = true);

/// Takes the descriptor out of `holder`; the caller closes it. -1 if there was none.
int unguard(GuardedFd& holder);

bool is_guarded(int fd);

/// Smallest guarded number that is >= first, or -1.
int next_guarded(int first);

/// dup2() to a guarded number: moves ours away. False if that failed.
bool make_room_at(int fd);

/// After fork(), in the child: the descriptors are this process's to move from now on.
void adopt_guarded_fds();

}  // namespace softhca::shim::preload
