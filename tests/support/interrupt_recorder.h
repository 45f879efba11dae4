// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <map>

#include "hw-model/runtime/interrupts.h"

namespace softhca::test {

/// Counts interrupts by vector.
class InterruptRecorder final : public InterruptSink {
 public:
  void raise(std::uint16_t vector) override { ++raised_[vector]; }
  unsigned count(std::uint16_t vector) const {
    const auto found = raised_.find(vector);
    return found == raised_.end() ? 0 : found->second;
  }

 private:
  std::map<std::uint16_t, unsigned> raised_;
};

}  // namespace softhca::test
