// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/ib/payload.h"

#include <algorithm>

namespace softhca::ib {
namespace {

/// Room for any packet of an MTU of 4096, so that storage of used packets fits the next ones.
constexpr std::size_t kSmallestStorage = 4096;

}  // namespace

void PayloadLender::recall() {
  while (first_ != nullptr) first_->own();
}

void Payload::refer(PayloadLender& lender, const std::byte* memory, std::size_t size) {
  give_back();
  data_ = memory;
  size_ = size;
  lender_ = &lender;
  next_ = lender.first_;
  link_ = &lender.first_;
  if (next_ != nullptr) next_->link_ = &next_;
  lender.first_ = this;
}

void Payload::move_front(std::size_t size, Payload& front) {
  if (lender_ != nullptr) {
    front.refer(*lender_, data_, size);
    data_ += size;
    size_ -= size;
    return;
  }
  own();
  front.assign(data_, size);
  std::memmove(storage_.get(), data_ + size, size_ - size);
  size_ -= size;
}

void Payload::unlink() {
  *link_ = next_;
  if (next_ != nullptr) next_->link_ = link_;
  lender_ = nullptr;
  next_ = nullptr;
  link_ = nullptr;
}

void Payload::copy() {
  assign(data_, size_);
}

void Payload::reserve(std::size_t size) {
  if (size > capacity_) {
    const std::size_t capacity = std::max(size, kSmallestStorage);
    // Without initialisation: it is about to be filled.
    std::unique_ptr<std::byte[]> grown(new std::byte[capacity]);
    if (size_ != 0 && data_ == storage_.get()) std::memcpy(grown.get(), data_, size_);
    storage_ = std::move(grown);
    capacity_ = capacity;
  }
  data_ = storage_.get();
}

/// Storage is swapped, so that neither side needs new one for its next bytes.
void Payload::take(Payload& other) {
  if (other.is_view()) {
    assign(other.data_, other.size_);
    other.clear();
    return;
  }
  std::swap(storage_, other.storage_);
  std::swap(capacity_, other.capacity_);
  data_ = std::exchange(other.data_, other.storage_.get());
  size_ = std::exchange(other.size_, 0);
  if (other.lender_ == nullptr) return;
  PayloadLender& lender = *other.lender_;
  other.unlink();
  refer(lender, data_, size_);
}

}  // namespace softhca::ib
