// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>

#include "hw-model/queues/event_queue.h"
#include "hw-model/runtime/clock.h"

namespace softhca {

/// Where queues and transport report asynchronous events; the implementer writes the EQEs (EQE
/// data: QPN or SRQN in the last word, CQN and syndrome for CQ errors) to the EQs that asked for
/// them. Called from inside model steps; must not call back into the transport.
class AsyncEvents {
 public:
  virtual ~AsyncEvents() = default;
  /// communication_established, sq_drained, wq_catastrophic, wq_invalid_request,
  /// wq_access_error, srq_last_wqe, path_migrated.
  virtual void qp_event(EventType type, std::uint32_t qpn) = 0;
  /// srq_limit, srq_catastrophic.
  virtual void srq_event(EventType type, std::uint32_t srqn) = 0;
  /// EventType::cq_error; syndrome 1: overrun, 2: access violation.
  virtual void cq_error(std::uint32_t cqn, std::uint8_t syndrome) = 0;
};

class CompletionQueue;

/// Who runs the moderation timers of completion queues.
class CqTimers {
 public:
  virtual ~CqTimers() = default;
  /// CompletionQueue::expire() shall be called at `deadline`, and at no time asked for before.
  virtual void start_cq_timer(CompletionQueue& cq, Nanoseconds deadline) = 0;
};

}  // namespace softhca
