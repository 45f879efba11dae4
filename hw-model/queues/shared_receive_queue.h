// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>

#include "hw-model/queues/completion_queue.h"
#include "hw-model/queues/object_table.h"
#include "hw-model/queues/queue_events.h"
#include "hw-model/queues/receive_queue.h"

namespace softhca {

/// What CREATE_SRQ, CREATE_XRC_SRQ or CREATE_RMP says.
struct SrqParams {
  QueueBuffer buffer;
  ReceiveQueueParams ring;  ///< `start` is 0; stride includes the 16-byte link.
  std::uint32_t pd = 0;
  std::uint32_t user_index = 0;   ///< XRC SRQ: CQE.srqn_user_index.
  std::uint32_t xrcd = 0;         ///< XRC SRQ: its domain; 0: another kind of SRQ.
  ObjectRef<CompletionQueue> cq;  ///< XRC SRQ: where its receives complete.
  std::uint16_t limit = 0;        ///< lwm; 0: not armed.
  bool reserved_lkey = false;
};

/// Receive WQEs shared by many QPs: a linked list in driver memory that starts at entry 0 (PRM
/// "SRQ").
class SharedReceiveQueue {
 public:
  SharedReceiveQueue(std::uint32_t number, DmaSpace& dma, AsyncEvents& events, SrqParams params);

  std::uint32_t number() const { return number_; }
  const SrqParams& params() const { return params_; }

  /// Takes the WQE at the head of the list. Bounded by the posted counter, so a cyclic list costs
  /// nothing; a link outside the queue, or a counter beyond its size, puts the SRQ in error
  /// (event).
  TakeStatus take(ReceiveWqe& wqe);
  /// ARM_RQ / MODIFY_RMP: event once when fewer than `limit` WQEs are left; 0 disarms.
  void arm_limit(std::uint16_t limit) { params_.limit = limit; }
  std::uint16_t limit() const { return params_.limit; }
  /// WQEs posted and not taken, as far as the doorbell record can be read.
  std::uint16_t available();
  bool in_error() const { return error_; }

 private:
  TakeStatus refresh();
  TakeStatus fail();

  std::uint32_t number_;
  DmaSpace& dma_;
  AsyncEvents& events_;
  SrqParams params_;
  std::uint16_t head_ = 0;
  std::uint16_t consumed_ = 0;
  std::uint16_t posted_ = 0;
  bool error_ = false;
};

}  // namespace softhca
