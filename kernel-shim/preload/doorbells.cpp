// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/preload/doorbells.h"

#include <atomic>
#include <cstddef>

#include <infiniband/verbs.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "hw-model/runtime/doorbell_hints.h"
#include "kernel-shim/preload/command_fd.h"
#include "kernel-shim/preload/commands.h"
#include "kernel-shim/preload/errno_guard.h"
#include "kernel-shim/preload/guarded_fds.h"
#include "kernel-shim/preload/ioctl_layout.h"
#include "kernel-shim/protocol/protocol.h"

namespace softhca::shim::preload {
namespace {

struct Entry {
  std::atomic<const ibv_context*> context;
  std::atomic<DoorbellHints*> hints;
  GuardedFd wake;
};
constexpr unsigned kEntries = 64;
Entry entries[kEntries];
std::atomic<unsigned> entries_used;

Entry* find(const ibv_context* context) {
  const unsigned used = entries_used.load(std::memory_order_acquire);
  for (unsigned i = 0; i < used; ++i) {
    if (entries[i].context.load(std::memory_order_acquire) == context) return &entries[i];
  }
  return nullptr;
}

/// An entry whose context nobody looks up yet.
Entry* claim() {
  // Marks an entry as taken until its context is known.
  static const ibv_context* const kTaken = reinterpret_cast<const ibv_context*>(&entries);
  for (unsigned i = 0; i < kEntries; ++i) {
    const ibv_context* expected = nullptr;
    if (!entries[i].context.compare_exchange_strong(expected, kTaken)) continue;
    unsigned used = entries_used.load();
    while (used <= i && !entries_used.compare_exchange_weak(used, i + 1)) {
    }
    return &entries[i];
  }
  return nullptr;
}

struct Answer {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  int wake = -1;
};

bool ask(int command_fd, Answer& answer) {
  struct {
    IoctlHeader header;
    IoctlAttribute attributes[3];
  } call{};
  constexpr std::uint32_t kDriverMlx5 = 1;
  call.header.length = sizeof(call);
  call.header.object_id = kObjectSofthca;
  call.header.method_id = kMethodGetDoorbellHints;
  call.header.num_attrs = 3;
  call.header.driver_id = kDriverMlx5;
  call.attributes[0].attr_id = kAttrHintsOffset;
  call.attributes[0].len = sizeof(answer.offset);
  call.attributes[0].data = reinterpret_cast<std::uint64_t>(&answer.offset);
  call.attributes[1].attr_id = kAttrHintsLength;
  call.attributes[1].len = sizeof(answer.length);
  call.attributes[1].data = reinterpret_cast<std::uint64_t>(&answer.length);
  call.attributes[2].attr_id = kAttrHintsWakeFd;
  if (command_ioctl(command_fd, kVerbsIoctl, &call) != 0) return false;
  answer.wake = static_cast<int>(call.attributes[2].data);
  return true;
}

void wake_if_asleep(Entry& entry, DoorbellHints& hints) {
  if (!hints.must_wake()) return;
  const ErrnoGuard guard;
  const std::uint64_t one = 1;
  const long written =
      ::syscall(SYS_write, entry.wake.load(std::memory_order_relaxed), &one, sizeof(one));
  if (written < 0) hints.wake_failed();
}

}  // namespace

bool attach_doorbells(ibv_context* context) {
  const ErrnoGuard errno_guard;
  detach_doorbells(context);  // Closed in a way that we did not see, and its memory used again.
  Answer answer;
  if (!is_command_fd(context->cmd_fd) || !ask(context->cmd_fd, answer)) return false;
  Entry* entry = answer.length >= sizeof(DoorbellHints) ? claim() : nullptr;
  void* mapped = MAP_FAILED;
  if (entry != nullptr) {
    mapped = command_mmap(context->cmd_fd, nullptr, kDoorbellHintsSize, PROT_READ | PROT_WRITE,
                          MAP_SHARED, static_cast<off_t>(answer.offset));
  }
  if (mapped == MAP_FAILED) {
    if (entry != nullptr) entry->context.store(nullptr);
    ::syscall(SYS_close, answer.wake);
    return false;
  }
  guard(entry->wake, answer.wake);
  entry->hints.store(static_cast<DoorbellHints*>(mapped), std::memory_order_relaxed);
  entry->context.store(context, std::memory_order_release);
  return true;
}

void detach_doorbells(ibv_context* context) {
  Entry* entry = find(context);
  if (entry == nullptr) return;
  const ErrnoGuard errno_guard;
  ::syscall(SYS_munmap, entry->hints.exchange(nullptr), kDoorbellHintsSize);
  ::syscall(SYS_close, unguard(entry->wake));
  entry->context.store(nullptr, std::memory_order_release);
}

std::uint32_t engine_processor(const ibv_context* context) {
  const Entry* entry = find(context);
  if (entry == nullptr) return 0;
  return entry->hints.load(std::memory_order_relaxed)
      ->engine_processor.load(std::memory_order_relaxed);
}

void ring_send(const ibv_context* context, std::uint32_t qp_number) {
  Entry* entry = find(context);
  if (entry == nullptr) return;
  DoorbellHints* hints = entry->hints.load(std::memory_order_relaxed);
  hints->ring_sq(hints->sq.place_of(qp_number));
  wake_if_asleep(*entry, *hints);
}

void ring_arm(const ibv_context* context, std::uint32_t cq_number) {
  Entry* entry = find(context);
  if (entry == nullptr) return;
  DoorbellHints* hints = entry->hints.load(std::memory_order_relaxed);
  hints->cq_arm.mark(cq_number);
  wake_if_asleep(*entry, *hints);
}

}  // namespace softhca::shim::preload
