// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

namespace softhca::fabric {

/// Asks for Fabric::step() to be run: something entered a queue, or a manager may have to act. Who
/// changes what step() looks at makes one; without one, nothing has to be looked at before the
/// deadline that the last step() found.
class StepRequest {
 public:
  void make() { made_ = true; }
  void take() { made_ = false; }
  bool made() const { return made_; }

 private:
  bool made_ = true;
};

}  // namespace softhca::fabric
