// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>

struct ibv_context;

/// Doorbell hints (hw-model/runtime/doorbell_hints.h) of the contexts that stock libmlx5 has
/// opened: it stores to UAR pages, which the engine sees only when it looks; a hint wakes it.
namespace softhca::shim::preload {

/// Asks the daemon for the hints of a context's command descriptor and maps them. False: there are
/// none, and ring_*() do nothing for this context.
bool attach_doorbells(ibv_context* context);
void detach_doorbells(ibv_context* context);

/// DoorbellHints::engine_processor; 0 also for a context without hints.
std::uint32_t engine_processor(const ibv_context* context);
/// A send queue's / a completion queue's doorbell record moved.
void ring_send(const ibv_context* context, std::uint32_t qp_number);
void ring_arm(const ibv_context* context, std::uint32_t cq_number);

}  // namespace softhca::shim::preload
