// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "hw-model/prm/big_endian.h"

/// Every store that the device may be watching, and every fence that orders them, in one place.
///
/// A producer on hardware must keep this order: WQE, store fence, doorbell record, fence, UAR
/// register, flush of write-combining buffers. x86 would forgive some of it on ordinary memory; a
/// write-combining UAR mapping and other architectures do not.
///
/// With SOFTHCA_PROVIDER_RECORD_STORES each primitive reports itself to a recorder first: the test
/// of the order compiles the provider that way.
namespace softhca::provider {

enum class StoreEvent : std::uint8_t {
  fence_before_record,
  record,
  fence_before_doorbell,
  doorbell,
  blue_flame,
  flush_doorbell,
  fence_after_owner,
};

#ifdef SOFTHCA_PROVIDER_RECORD_STORES
/// Called before the primitive takes effect. `address` is null for fences.
void record_store(StoreEvent event, const volatile void* address, std::uint64_t value);
#else
inline void record_store(StoreEvent, const volatile void*, std::uint64_t) {}
#endif

/// Orders stores to host memory (WQEs) before a following store to host memory (doorbell record) as
/// the device sees them.
inline void fence_before_record() {
  record_store(StoreEvent::fence_before_record, nullptr, 0);
#if defined(__x86_64__)
  asm volatile("" ::: "memory");
#elif defined(__aarch64__)
  asm volatile("dmb oshst" ::: "memory");
#else
  __sync_synchronize();
#endif
}

/// Stores one word of a doorbell record.
inline void store_record(prm::Be32* word, std::uint32_t value) {
  record_store(StoreEvent::record, word, value);
  // Release costs nothing where the fence is one for the compiler; it tells ThreadSanitizer of the
  // order.
  __atomic_store_n(&word->raw, prm::Be32::swap(value), __ATOMIC_RELEASE);
}

/// Orders stores to host memory before a following store to a (possibly write-combining) register.
inline void fence_before_doorbell() {
  record_store(StoreEvent::fence_before_doorbell, nullptr, 0);
#if defined(__x86_64__)
  asm volatile("sfence" ::: "memory");
#elif defined(__aarch64__)
  asm volatile("dsb st" ::: "memory");
#else
  __sync_synchronize();
#endif
}

/// Writes an 8-byte doorbell register by one store; `value` is already in big-endian order.
inline void store_doorbell(void* reg, std::uint64_t value) {
  record_store(StoreEvent::doorbell, reg, value);
  __atomic_store_n(static_cast<std::uint64_t*>(reg), value, __ATOMIC_RELAXED);
}

/// Copies one 64-byte block to a BlueFlame buffer by eight stores in ascending order.
inline void store_blue_flame_block(void* reg, const void* block) {
  record_store(StoreEvent::blue_flame, reg, *static_cast<const std::uint64_t*>(block));
  auto* to = static_cast<volatile std::uint64_t*>(reg);
  const auto* from = static_cast<const std::uint64_t*>(block);
  for (int i = 0; i < 8; ++i) to[i] = from[i];
}

/// Pushes write-combining buffers out of this processor, before another may ring the same register.
inline void flush_doorbell() {
  record_store(StoreEvent::flush_doorbell, nullptr, 0);
#if defined(__x86_64__)
  asm volatile("sfence" ::: "memory");
#elif defined(__aarch64__)
  asm volatile("dsb st" ::: "memory");
#else
  __sync_synchronize();
#endif
}

/// Orders the load of a CQE's owner byte before loads of the rest of it and of the data it
/// announces.
inline void fence_after_owner() {
  record_store(StoreEvent::fence_after_owner, nullptr, 0);
#if defined(__x86_64__)
  asm volatile("" ::: "memory");
#elif defined(__aarch64__)
  asm volatile("dmb oshld" ::: "memory");
#else
  __sync_synchronize();
#endif
}

}  // namespace softhca::provider
