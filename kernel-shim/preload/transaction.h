// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include "kernel-shim/preload/exchange.h"

namespace softhca::shim::preload {

/// exchange(), and again with the memory shared that the daemon asks for, until the daemon has
/// carried the request out. 0 or an errno of this side; reply.error() is the daemon's.
int transact(int socket, Request& request, Reply& reply);

}  // namespace softhca::shim::preload
