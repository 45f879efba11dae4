// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <string>

#include "emulator/runtime/result.h"
#include "emulator/runtime/unique_fd.h"
#include "emulator/vm/options.h"

namespace softhca::vm {

/// Cleans up behind a guest even when its `softhca vm` is killed: a process that waits for its end,
/// then detaches the guest's HCAs and removes its files.
class Guardian {
 public:
  /// Forks; to be called before there are threads.
  static runtime::Result<Guardian> start(const Options& options);
  /// Lets it clean up now, and waits until it has.
  void finish();

  Guardian(Guardian&&) = default;
  Guardian& operator=(Guardian&&) = default;
  ~Guardian() { finish(); }

 private:
  Guardian(pid_t process, runtime::UniqueFd pipe) : process_(process), pipe_(std::move(pipe)) {}

  pid_t process_;
  runtime::UniqueFd pipe_;
};

}  // namespace softhca::vm
