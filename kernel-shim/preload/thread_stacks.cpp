// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/preload/thread_stacks.h"

#include <atomic>
#include <cerrno>
#include <cstdlib>

#include <dlfcn.h>
#include <pthread.h>

#include "kernel-shim/preload/interpose.h"
#include "kernel-shim/preload/next.h"

namespace softhca::shim::preload {
namespace {

struct Stack {
  std::atomic<std::uint64_t> begin;
  std::atomic<std::uint64_t> end;  // 0: free.
};
constexpr unsigned kStacks = 4096;
Stack stacks[kStacks];
std::atomic<unsigned> stacks_used;

pthread_key_t own_stack;
std::atomic<bool> has_key;

void forget(void* stack) {
  static_cast<Stack*>(stack)->end.store(0, std::memory_order_release);
}

/// Of the C library's description of a thread; it tells debuggers.
std::atomic<std::uint32_t> descriptor_size;

__attribute__((constructor)) void prepare() {
  has_key.store(::pthread_key_create(&own_stack, forget) == 0);
  const auto* size =
      static_cast<const std::uint32_t*>(::dlsym(RTLD_DEFAULT, "_thread_db_sizeof_pthread"));
  constexpr std::uint32_t kEnough = 4096;
  descriptor_size.store(size != nullptr ? *size : kEnough);
}

/// Enters the calling thread's stack until the thread ends. With too many threads it is left out.
void remember_own() {
  pthread_attr_t attributes;
  if (!has_key.load() || ::pthread_getattr_np(::pthread_self(), &attributes) != 0) return;
  void* base = nullptr;
  std::size_t size = 0;
  const bool known = ::pthread_attr_getstack(&attributes, &base, &size) == 0;
  ::pthread_attr_destroy(&attributes);
  if (!known) return;
  const auto begin = reinterpret_cast<std::uint64_t>(base);
  for (unsigned i = 0; i < kStacks; ++i) {
    std::uint64_t expected = 0;
    // `begin` of the last owner beside the new end is a stack too large for a moment.
    if (!stacks[i].end.compare_exchange_strong(expected, begin + size)) continue;
    stacks[i].begin.store(begin);
    unsigned used = stacks_used.load();
    while (used <= i && !stacks_used.compare_exchange_weak(used, i + 1)) {
    }
    ::pthread_setspecific(own_stack, &stacks[i]);
    return;
  }
}

struct Start {
  void* (*routine)(void*);
  void* argument;
};

void* begin_thread(void* given) {
  const Start start = *static_cast<Start*>(given);
  std::free(given);
  remember_own();
  return start.routine(start.argument);
}

}  // namespace

bool is_own_thread_data(std::uint64_t begin, std::uint64_t end) {
  const auto descriptor = reinterpret_cast<std::uint64_t>(__builtin_thread_pointer());
  const auto error = reinterpret_cast<std::uint64_t>(&errno);
  return (error >= begin && error < end) ||
         (descriptor < end && descriptor + descriptor_size.load() > begin);
}

bool is_stack(std::uint64_t begin, std::uint64_t end) {
  const auto own = reinterpret_cast<std::uint64_t>(__builtin_frame_address(0));
  if (own >= begin && own < end) return true;
  const unsigned used = stacks_used.load(std::memory_order_acquire);
  for (unsigned i = 0; i < used; ++i) {
    const std::uint64_t stack_end = stacks[i].end.load(std::memory_order_acquire);
    if (stack_end > begin && stacks[i].begin.load(std::memory_order_acquire) < end) return true;
  }
  return false;
}

SOFTHCA_INTERPOSE(int, pthread_create, pthread_t* thread, const pthread_attr_t* attributes,
                  void* (*routine)(void*), void* argument) {
  auto* start = static_cast<Start*>(std::malloc(sizeof(Start)));
  if (start == nullptr) return EAGAIN;
  *start = {routine, argument};
  const int error = next::pthread_create(thread, attributes, begin_thread, start);
  if (error != 0) std::free(start);
  return error;
}

}  // namespace softhca::shim::preload
