// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>

namespace softhca::fabric {

/// Asks for Fabric::step() to be run: something entered a queue, or a manager may have to act. Who
/// changes what step() looks at makes one; without one, nothing has to be looked at before the
/// deadline that the last step() found.
class StepRequest {
 public:
  void make() {
    made_ = true;
    ++epoch_;
  }
  void take() {
    made_ = false;
    ++epoch_;
  }
  bool made() const { return made_; }

  /// Something changed that a way depends on (ib::Port::way_epoch()), and nothing that step() does.
  void note_change() { ++epoch_; }
  const std::uint64_t& epoch() const { return epoch_; }

 private:
  bool made_ = true;
  std::uint64_t epoch_ = 1;
};

}  // namespace softhca::fabric
