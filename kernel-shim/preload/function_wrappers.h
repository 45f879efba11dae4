// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <utility>

namespace softhca::shim::preload {

/// Wraps function pointers without a place to keep the original beside each: a provider has few
/// variants of each function, so every distinct original gets a stub of its own, instantiated from
/// `Stub<I>::call`, which finds it at index I.
template <template <unsigned> class Stub, typename Function, unsigned kSlots>
class FunctionWrappers {
 public:
  /// The stub for `original`; `original` itself if it is null, a stub, or one too many.
  static Function wrap(Function original) {
    if (original == nullptr || is_stub(original)) return original;
    for (unsigned i = 0; i < kSlots; ++i) {
      Function found = originals_[i].load(std::memory_order_acquire);
      if (found == nullptr && originals_[i].compare_exchange_strong(found, original)) {
        return kStubs[i];
      }
      if (found == original) return kStubs[i];
    }
    return original;
  }

  template <unsigned I>
  static Function original() {
    return originals_[I].load(std::memory_order_relaxed);
  }

 private:
  static bool is_stub(Function function) {
    for (const Function stub : kStubs) {
      if (stub == function) return true;
    }
    return false;
  }

  // NOLINTBEGIN(bugprone-dynamic-static-initializers): all three are constant-initialised.
  template <typename Indexes>
  struct Table;
  template <unsigned... I>
  struct Table<std::integer_sequence<unsigned, I...>> {
    static constexpr Function stubs[kSlots] = {&Stub<I>::call...};
  };
  static constexpr const Function (&kStubs)[kSlots] =
      Table<std::make_integer_sequence<unsigned, kSlots>>::stubs;

  static inline std::atomic<Function> originals_[kSlots];
  // NOLINTEND(bugprone-dynamic-static-initializers)
};

}  // namespace softhca::shim::preload
