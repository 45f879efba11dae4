// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

namespace softhca::shim::preload {

/// A function of the libibverbs that this process has loaded, or null. It may have been loaded by
/// dlopen() into a scope of its own (Python does), where RTLD_NEXT does not see it.
void* find_verbs_symbol(const char* name, const char* version);

template <typename Function>
Function verbs_symbol(const char* name, const char* version) {
  return reinterpret_cast<Function>(find_verbs_symbol(name, version));
}

}  // namespace softhca::shim::preload
