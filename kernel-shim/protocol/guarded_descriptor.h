// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <atomic>

/// What libsofthca-preload.so offers other libraries inside the application (the provider). Weak:
/// null where it is not loaded.
extern "C" {

/// Puts `fd` into `holder`, under a number that may be another one, and keeps the application from
/// closing it: close() and its relatives then answer as if the number were not in use, and dup2()
/// to it moves it away, which changes `holder`.
[[gnu::weak, gnu::visibility("default")]] void softhca_guard_descriptor(std::atomic<int>* holder,
                                                                        int fd);
/// Ends that. Returns the descriptor, which is the caller's to close; `holder` holds -1.
[[gnu::weak, gnu::visibility("default")]] int softhca_unguard_descriptor(std::atomic<int>* holder);
}
