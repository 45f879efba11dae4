// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>

namespace softhca {

/// Where the model raises its interrupts (MSI-X vectors); the runner owns delivery and per-vector
/// pending bits. Called from inside model steps; must not call back into the model.
class InterruptSink {
 public:
  virtual ~InterruptSink() = default;
  virtual void raise(std::uint16_t vector) = 0;
};

}  // namespace softhca
