// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include "provider/abi/driver.h"

namespace softhca::provider {

/// Operations of the provider as libibverbs knows them.
extern const abi::verbs_device_ops kDeviceOps;

/// Offers kDeviceOps to the libibverbs of this process, once. Says on stderr why not when the
/// library's ABI is not a known one.
void register_provider();

}  // namespace softhca::provider
