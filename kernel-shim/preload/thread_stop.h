// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

namespace softhca::shim::preload {

/// True while the calling thread is the only one of its process.
bool is_only_thread();

/// Stops every other thread of the process by a real-time signal whose handler waits; at most one
/// caller at a time. False: one of them cannot be stopped (it blocks every signal), or there are
/// too many; then none is. Threads that wait for a processor are waited for. System calls in which
/// the others wait are restarted where SA_RESTART does that; poll(), epoll_wait() and nanosleep()
/// end with EINTR.
bool stop_other_threads();
/// Lets them go on.
void resume_other_threads();

}  // namespace softhca::shim::preload
