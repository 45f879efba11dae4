// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/host/device/command_doorbell.h"

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hw-model/prm/iseg.h"

namespace softhca::shim {

CommandDoorbell::CommandDoorbell(PciDevice& device) : device_(device) {
  const MappableArea area = device.hints_area();
  if (area.fd < 0 || area.length < sizeof(DoorbellHints) || device.wake_fd() < 0) return;
  void* const base = ::mmap(nullptr, kDoorbellHintsSize, PROT_READ | PROT_WRITE, MAP_SHARED,
                            area.fd, static_cast<off_t>(area.offset));
  if (base != MAP_FAILED) hints_ = static_cast<DoorbellHints*>(base);
}

CommandDoorbell::~CommandDoorbell() {
  if (hints_ != nullptr) ::munmap(hints_, kDoorbellHintsSize);
}

bool CommandDoorbell::ring(unsigned slot) {
  wait_here();
  // A command that needs a map must not overtake it.
  if (!device_.is_unsettled() && ring_hints(slot)) return true;
  return ring_register(slot);
}

void CommandDoorbell::wait_here() {
  if (hints_ == nullptr) return;
  hints_->waiting_at.store(static_cast<std::uint32_t>(::sched_getcpu() + 1),
                           std::memory_order_relaxed);
}

void CommandDoorbell::waited() {
  if (hints_ != nullptr) hints_->waiting_at.store(0, std::memory_order_relaxed);
}

bool CommandDoorbell::ring_hints(unsigned slot) {
  if (hints_ == nullptr) return false;
  hints_->mark_commands(1U << slot);
  if (!hints_->must_wake()) return true;
  const std::uint64_t one = 1;
  if (::write(device_.wake_fd(), &one, sizeof(one)) == sizeof(one)) return true;
  hints_->wake_failed();
  return false;
}

bool CommandDoorbell::ring_register(unsigned slot) {
  const std::uint32_t vector = __builtin_bswap32(1U << slot);
  // Posted: that the device has seen it shows in the owner bit, and an answer would wake us twice.
  return device_.bar_write(prm::InitializationSegment::command_doorbell_vector::byte_offset,
                           std::as_bytes(std::span(&vector, 1)), true) == 0;
}

}  // namespace softhca::shim
