// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <utility>

#include "emulator/device-server/irq_table.h"
#include "emulator/device-server/message_memory.h"

namespace softhca::emulator {

/// Holds an interrupt back until the client has done the writes that were sent before it: eventfds
/// overtake messages, and a driver that looks must find what it was woken for.
class OrderedInterrupts final : public InterruptSink {
 public:
  explicit OrderedInterrupts(IrqTable& table) : table_(table) {}

  /// Writes to wait for; null: none.
  void follow(std::shared_ptr<const MessageMemory> writes) {
    writes_ = std::move(writes);
    waiting_.clear();
  }
  void raise(std::uint16_t vector) override {
    if (writes_ == nullptr || (waiting_.empty() && writes_->written(writes_->last_write()))) {
      table_.raise(vector);
    } else {
      waiting_.emplace(writes_->last_write(), vector);
    }
  }
  /// A write is through.
  void release() {
    while (!waiting_.empty() && writes_->written(waiting_.begin()->first)) {
      table_.raise(waiting_.begin()->second);
      waiting_.erase(waiting_.begin());
    }
  }
  void clear() { waiting_.clear(); }

 private:
  IrqTable& table_;
  std::shared_ptr<const MessageMemory> writes_;
  /// Write to wait for, vector: a vector waits once for a write, and a client owes the answers to
  /// so many writes at most.
  std::set<std::pair<std::uint64_t, std::uint16_t>> waiting_;
};

}  // namespace softhca::emulator
