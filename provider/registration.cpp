// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause

/// How the provider gets into a process, and in front of libmlx5.
///
/// libibverbs gives a device to the first matching provider in order of registration. Programs that
/// link libmlx5 themselves (perftest does) register it before libibverbs loads any configured
/// driver, so a driver file or IBV_DRIVERS is not enough for them. Preloaded (LD_PRELOAD), this
/// library stands in front of libibverbs in the order of look-up: libmlx5's own call of
/// verbs_register_driver_34() then comes here, and ours is registered before it is passed on.
/// Loaded by libibverbs, the definition below is nobody's but ours.

#include "provider/registration.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <optional>
#include <string>

#include "provider/abi/version.h"

namespace softhca::provider {
namespace {

using Register = void (*)(const void* operations);

/// The function of libibverbs, whoever else defines its name.
Register library_function() {
  void* const library = abi::open_library();
  if (library == nullptr) return nullptr;
  const auto function = reinterpret_cast<Register>(
      ::dlvsym(library, "verbs_register_driver_34", "IBVERBS_PRIVATE_34"));
  // The process holds the library: nothing is unloaded by this.
  ::dlclose(library);
  return function;
}

std::atomic<bool> is_offered;

__attribute__((constructor)) void register_when_loaded() {
  register_provider();
}

}  // namespace

void register_provider() {
  if (is_offered.exchange(true)) return;
  std::string reason;
  const std::optional<abi::Version> version = abi::identify(abi::loaded_library(), reason);
  const Register offer = library_function();
  if (!version.has_value() || offer == nullptr) {
    std::fprintf(stderr, "softhca provider: not loaded: %s\n",
                 version.has_value() ? "libibverbs takes no providers" : reason.c_str());
    return;
  }
  abi::set_current(*version);
  offer(&kDeviceOps);
}

}  // namespace softhca::provider

/// Stands before the library's own when this library is preloaded.
extern "C" __attribute__((visibility("default"))) void verbs_register_driver_34(
    const void* operations) {
  softhca::provider::register_provider();
  if (const auto pass_on = softhca::provider::library_function()) pass_on(operations);
}
