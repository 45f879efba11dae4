// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>

namespace softhca::shim::preload {

/// True if a part of [begin, end) is where the C library and the kernel keep what they write for
/// the calling thread while it runs (errno, thread descriptor, rseq area): it would wait for
/// itself.
bool is_own_thread_data(std::uint64_t begin, std::uint64_t end);

/// True if a part of [begin, end) is the stack of a thread that pthread_create() has started and
/// that has not ended, or of the caller. A stack must not be swapped: parent and child of fork()
/// would run on the same pages. The main thread's is marked in the memory map instead.
bool is_stack(std::uint64_t begin, std::uint64_t end);

}  // namespace softhca::shim::preload
