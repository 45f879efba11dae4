// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <vector>

#include "hw-model/memory/dma_space.h"
#include "hw-model/queues/doorbell_record.h"
#include "hw-model/queues/queue_buffer.h"

namespace softhca {

/// One scatter or gather entry, host order. Length 2^31 is written as 0 in a WQE.
struct DataEntry {
  std::uint64_t address = 0;
  std::uint32_t lkey = 0;
  std::uint32_t length = 0;
};

/// A receive WQE taken from its queue.
struct ReceiveWqe {
  std::uint16_t index = 0;     ///< For CQE.wqe_counter: RQ counter, or SRQ entry.
  std::uint64_t capacity = 0;  ///< Bytes of all entries.
  std::vector<DataEntry> entries;
};

enum class TakeStatus : std::uint8_t {
  ok,
  empty,
  pending,  ///< Park, repeat when memory has arrived.
  error,    ///< Producer counter beyond the ring, queue memory unreachable, bad link.
};

struct ReceiveQueueParams {
  std::uint64_t start = 0;  ///< Byte offset in the buffer.
  std::uint8_t log_size = 0;
  std::uint32_t stride = 16;          ///< Bytes, 16..1024, power of two.
  std::uint64_t doorbell_record = 0;  ///< IOVA of the 4-byte receive word.
  bool signature = false;  ///< wq_signature: the first 16 bytes of a WQE hold a signature.
};

/// Ring of receive WQEs of one QP (PRM "Receive queue"). The driver's counter is read when needed.
class ReceiveQueue {
 public:
  ReceiveQueue() = default;
  ReceiveQueue(DmaSpace& dma, ReceiveQueueParams params);

  /// Takes the next posted WQE.
  TakeStatus take(QueueBuffer& buffer, ReceiveWqe& wqe);
  /// Back to counters of 0 (2RST).
  void reset() { consumed_ = posted_ = 0; }

  std::uint16_t consumed() const { return consumed_; }
  std::uint16_t posted() const { return posted_; }  ///< As last read.
  const ReceiveQueueParams& params() const { return params_; }

 private:
  DmaSpace* dma_ = nullptr;
  ReceiveQueueParams params_;
  DoorbellRecord record_;
  std::uint16_t consumed_ = 0;
  std::uint16_t posted_ = 0;
};

/// Reads the scatter entries of a WQE (`bytes`, a multiple of 16) up to the invalid L_Key.
void parse_scatter_list(const std::uint8_t* bytes, std::size_t length, ReceiveWqe& wqe);

}  // namespace softhca
