// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/preload/verbs_symbol.h"

#include <atomic>

#include <dlfcn.h>

namespace softhca::shim::preload {

void* find_verbs_symbol(const char* name, const char* version) {
  static std::atomic<void*> library;
  void* handle = library.load(std::memory_order_acquire);
  if (handle == nullptr) {
    handle = ::dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (handle == nullptr) return nullptr;
    library.store(handle, std::memory_order_release);
  }
  return ::dlvsym(handle, name, version);
}

}  // namespace softhca::shim::preload
