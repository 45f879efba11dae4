// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/device/blue_flame.h"

#include <algorithm>

#include "hw-model/prm/wqe.h"

namespace softhca {
namespace {

std::uint32_t queue_number(std::span<const std::uint8_t, 8> bytes) {
  return static_cast<std::uint32_t>(prm::CtrlSegment::qpn::get(bytes.data()));
}

}  // namespace

void BlueFlame::store(std::uint32_t page, std::uint64_t offset,
                      std::span<const std::uint8_t, 8> bytes, Nanoseconds now) {
  const std::uint64_t at = std::uint64_t{page} * prm::kUarPageSize + offset;
  if (waiting_ && at == waiting_->start + waiting_->size) {
    std::ranges::copy(bytes, waiting_->bytes.begin() + static_cast<std::ptrdiff_t>(waiting_->size));
    waiting_->size += bytes.size();
    if (waiting_->size < waiting_->wanted) return;
    next_store_ = at + bytes.size();
    const Copy whole = *waiting_;
    waiting_.reset();
    ring_(queue_number(std::span(whole.bytes).first<8>()),
          std::span(whole.bytes).first(whole.size));
    return;
  }
  flush();
  if (offset % prm::Uar::blue_flame_half != 0) {
    // Further words of a copy whose WQE is known already, or was taken from the ring.
    if (at != next_store_) return;
    next_store_ += bytes.size();
    copied_[page] = true;
    return;
  }
  next_store_ = at + bytes.size();
  const std::size_t wanted = prm::CtrlSegment::ds_count::get(bytes.data()) * prm::kWqeUnit;
  if (!copied_[page] || wanted < bytes.size() || wanted > prm::Uar::blue_flame_half) {
    ring_(queue_number(bytes), {});
    return;
  }
  waiting_ = Copy{at, bytes.size(), wanted, now + kPatience, {}};
  std::ranges::copy(bytes, waiting_->bytes.begin());
}

void BlueFlame::flush() {
  if (!waiting_) return;
  const std::uint32_t qpn = queue_number(std::span(waiting_->bytes).first<8>());
  next_store_ = waiting_->start + waiting_->size;
  waiting_.reset();
  ring_(qpn, {});
}

void BlueFlame::expire(Nanoseconds now) {
  if (waiting_ && now >= waiting_->deadline) flush();
}

void BlueFlame::reset() {
  waiting_.reset();
  next_store_ = 0;
  std::fill(copied_.begin(), copied_.end(), false);
}

}  // namespace softhca
