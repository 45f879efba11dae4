// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause

/// Which verbs provider is registered first, and so gets the device.
///
/// Programs that link libmlx5 themselves (perftest does) register it before libibverbs loads any
/// configured driver, and the first match in order of registration wins. Providers register by
/// verbs_register_driver_34() from their constructors; with SOFTHCA_PROVIDER=softhca the first such
/// call is held until our own provider has registered.

#include <atomic>
#include <cstdlib>
#include <cstring>

#include <dlfcn.h>

#include "kernel-shim/preload/host_tree.h"
#include "kernel-shim/preload/interpose.h"
#include "kernel-shim/preload/verbs_symbol.h"

namespace softhca::shim::preload {
namespace {

constexpr char kProviderFile[] = "libsofthca-rdmav34.so";

bool is_wanted() {
  const char* provider = std::getenv("SOFTHCA_PROVIDER");
  return host_folder() != nullptr && provider != nullptr && std::strcmp(provider, "softhca") == 0;
}

/// Loads the provider that lies beside this library; its constructor registers it.
void load_own_provider() {
  Dl_info self;
  if (::dladdr(reinterpret_cast<const void*>(&load_own_provider), &self) == 0) return;
  const char* slash = std::strrchr(self.dli_fname, '/');
  const std::size_t folder =
      slash == nullptr ? 0 : static_cast<std::size_t>(slash + 1 - self.dli_fname);
  char path[kMaxPath];
  if (folder + sizeof(kProviderFile) > sizeof(path)) return;
  std::memcpy(path, self.dli_fname, folder);
  std::memcpy(path + folder, kProviderFile, sizeof(kProviderFile));
  // A provider that refuses to load says why; the other one is then used.
  ::dlopen(path, RTLD_NOW);
}

std::atomic<bool> is_loaded;

}  // namespace

SOFTHCA_INTERPOSE(void, verbs_register_driver_34, const void* operations) {
  if (is_wanted() && !is_loaded.exchange(true)) load_own_provider();
  using Register = void (*)(const void*);
  const auto original = verbs_symbol<Register>("verbs_register_driver_34", "IBVERBS_PRIVATE_34");
  if (original != nullptr) original(operations);
}

}  // namespace softhca::shim::preload
