// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/queues/event_queue.h"

#include <algorithm>
#include <utility>

#include "hw-model/prm/big_endian.h"

namespace softhca {
namespace {

constexpr std::uint32_t kEqIndexMask = 0xffffff;
constexpr std::size_t kTypeOffset = 1;
constexpr std::size_t kSubtypeOffset = 3;
constexpr std::size_t kDataOffset = 0x20;
constexpr std::size_t kOwnerOffset = 0x3f;

}  // namespace

EventQueue::EventQueue(std::uint32_t number, EqParams params, InterruptSink& interrupts)
    : number_(number), params_(std::move(params)), interrupts_(interrupts) {}

void EventQueue::post(EventType type, std::uint8_t subtype, std::span<const std::uint8_t> data) {
  Entry entry{};
  entry[kTypeOffset] = static_cast<std::uint8_t>(type);
  entry[kSubtypeOffset] = subtype;
  std::copy_n(data.begin(), std::min(data.size(), kDataSize), entry.begin() + kDataOffset);
  const std::uint32_t size = 1U << params_.log_size;
  const std::uint32_t used =
      ((producer_ - consumer_) & kEqIndexMask) + static_cast<std::uint32_t>(waiting_.size());
  const bool full = params_.always_armed ? waiting_.size() >= size : used >= size;
  if (full) {
    overrun_ = true;
    return;
  }
  if (!waiting_.empty() || !write(entry)) {
    waiting_.push_back(entry);
    return;
  }
  notify();
}

void EventQueue::post_completion(std::uint32_t cqn) {
  std::array<std::uint8_t, kDataSize> data{};
  data[25] = static_cast<std::uint8_t>(cqn >> 16);
  data[26] = static_cast<std::uint8_t>(cqn >> 8);
  data[27] = static_cast<std::uint8_t>(cqn);
  post(EventType::completion, 0, data);
}

/// False: the memory is pending. Unreachable memory loses the EQE, as on a device whose write is
/// aborted.
bool EventQueue::write(Entry entry) {
  const std::uint32_t slot = producer_ & ((1U << params_.log_size) - 1);
  const std::uint64_t offset = std::uint64_t{slot} * kEntrySize;
  DmaStatus status = params_.buffer.write(offset, entry.data(), kOwnerOffset);
  if (status == DmaStatus::ok) {
    const auto owner = static_cast<std::uint8_t>(producer_ >> params_.log_size & 1);
    status = params_.buffer.store_release(offset + kOwnerOffset, owner);
  }
  if (status == DmaStatus::pending) return false;
  producer_ = (producer_ + 1) & kEqIndexMask;
  return true;
}

void EventQueue::notify() {
  if (!armed_ && !params_.always_armed) return;
  armed_ = false;
  interrupts_.raise(params_.vector);
}

void EventQueue::doorbell(std::uint32_t consumer_index, bool arm) {
  consumer_ = consumer_index & kEqIndexMask;
  if (!arm) return;
  armed_ = true;
  // EQEs that came between the driver's last look and its arm.
  if (consumer_ != producer_) notify();
}

void EventQueue::memory_arrived() {
  const bool any = !waiting_.empty();
  while (!waiting_.empty() && write(waiting_.front())) waiting_.pop_front();
  if (any) notify();
}

}  // namespace softhca
