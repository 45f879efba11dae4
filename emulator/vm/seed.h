// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <string>

#include "emulator/runtime/result.h"
#include "emulator/vm/options.h"

namespace softhca::vm {

/// Makes the guest's second drive: a tar of our agent and init script, this run's settings, and the
/// copied files. So that the image in the cache depends on Debian alone.
runtime::Result<runtime::Done> make_seed(const Options& options, const std::string& path);

}  // namespace softhca::vm
