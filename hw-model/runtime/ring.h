// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

namespace softhca {

/// A queue (first in, first out) in one array that grows and is kept: unlike std::deque it takes no
/// memory while it is used, and its ends are found without a table of blocks. T is movable and has
/// a default value, which is what is left of an element that was taken.
template <typename T>
class Ring {
 public:
  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }

  /// Oldest element; there must be one.
  T& front() { return slots_[first_]; }
  const T& front() const { return slots_[first_]; }

  void push_back(T value) {
    if (size_ == capacity_) grow();
    slots_[(first_ + size_) & (capacity_ - 1)] = std::move(value);
    ++size_;
  }
  /// Before the oldest.
  void push_front(T value) {
    if (size_ == capacity_) grow();
    first_ = (first_ - 1) & (capacity_ - 1);
    slots_[first_] = std::move(value);
    ++size_;
  }
  /// Takes the oldest element; there must be one.
  T pop_front() {
    T value = std::exchange(slots_[first_], T{});
    first_ = (first_ + 1) & (capacity_ - 1);
    --size_;
    return value;
  }
  /// Takes the newest element; there must be one.
  T pop_back() {
    --size_;
    return std::exchange(slots_[(first_ + size_) & (capacity_ - 1)], T{});
  }
  /// Takes out all elements that equal `value`; the others keep their order.
  void erase(const T& value) {
    for (std::size_t left = size_; left != 0; --left) {
      T element = pop_front();
      if (!(element == value)) push_back(std::move(element));
    }
  }
  void clear() {
    while (!empty()) pop_front();
  }

 private:
  static constexpr std::size_t kSmallest = 16;

  void grow() {
    const std::size_t capacity = std::max(kSmallest, capacity_ * 2);
    auto larger = std::make_unique<T[]>(capacity);
    for (std::size_t i = 0; i < size_; ++i) {
      larger[i] = std::move(slots_[(first_ + i) & (capacity_ - 1)]);
    }
    slots_ = std::move(larger);
    capacity_ = capacity;
    first_ = 0;
  }

  std::unique_ptr<T[]> slots_;
  std::size_t capacity_ = 0;  ///< Power of two.
  std::size_t first_ = 0;
  std::size_t size_ = 0;
};

}  // namespace softhca
