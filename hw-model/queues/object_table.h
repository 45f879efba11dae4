// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace softhca {

enum class DestroyResult : std::uint8_t { ok, not_found, in_use };

template <typename T>
class ObjectTable;

/// Counted use of an object of an ObjectTable: while one exists the object cannot be destroyed. May
/// be empty.
template <typename T>
class ObjectRef {
 public:
  ObjectRef() = default;
  ObjectRef(const ObjectRef& other) : object_(other.object_), uses_(other.uses_) {
    if (uses_ != nullptr) ++*uses_;
  }
  ObjectRef(ObjectRef&& other) noexcept
      : object_(std::exchange(other.object_, nullptr)),
        uses_(std::exchange(other.uses_, nullptr)) {}
  ObjectRef& operator=(ObjectRef other) noexcept {
    std::swap(object_, other.object_);
    std::swap(uses_, other.uses_);
    return *this;
  }
  ~ObjectRef() {
    if (uses_ != nullptr) --*uses_;
  }

  T* get() const { return object_; }
  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  friend class ObjectTable<T>;
  ObjectRef(T* object, std::uint32_t* uses) : object_(object), uses_(uses) { ++*uses_; }

  T* object_ = nullptr;
  std::uint32_t* uses_ = nullptr;
};

/// How much ObjectTable::visit_some() may look at.
class VisitBudget {
 public:
  /// Objects, or kEmptyPerObject times as many numbers without one.
  explicit VisitBudget(std::uint32_t objects) : left_(std::uint64_t{objects} * kEmptyPerObject) {}
  bool spent() const { return left_ == 0; }
  void charge(bool object) {
    const std::uint64_t cost = object ? kEmptyPerObject : 1;
    left_ -= std::min(cost, left_);
  }

 private:
  static constexpr std::uint64_t kEmptyPerObject = 16;
  std::uint64_t left_;
};

/// Objects of one kind by their 24-bit number. A number is used again only after kReuseDistance
/// others were given back, so that a packet or doorbell for a dead object does not meet its
/// successor, and what walks the table walks no more than that beside what lives. Addresses of
/// objects are stable. All references must be gone before the table is.
template <typename T>
class ObjectTable {
 public:
  /// Numbers are in [first, limit).
  explicit ObjectTable(std::uint32_t first = 1, std::uint32_t limit = 1U << 18)
      : first_(first), limit_(limit) {}

  /// Makes T(number, arguments...); null when every number is taken.
  template <typename... Arguments>
  T* emplace(Arguments&&... arguments) {
    const auto number = take_number();
    if (!number) return nullptr;
    slots_[*number - first_] =
        std::make_unique<Slot>(*number, std::forward<Arguments>(arguments)...);
    ++size_;
    return &slots_[*number - first_]->object;
  }

  T* find(std::uint32_t number) const {
    Slot* slot = slot_of(number);
    return slot == nullptr ? nullptr : &slot->object;
  }
  /// Empty if there is no such object.
  ObjectRef<T> ref(std::uint32_t number) const {
    Slot* slot = slot_of(number);
    return slot == nullptr ? ObjectRef<T>() : ObjectRef<T>(&slot->object, &slot->uses);
  }
  std::uint32_t use_count(std::uint32_t number) const {
    Slot* slot = slot_of(number);
    return slot == nullptr ? 0 : slot->uses;
  }

  DestroyResult destroy(std::uint32_t number) {
    Slot* slot = slot_of(number);
    if (slot == nullptr) return DestroyResult::not_found;
    if (slot->uses != 0) return DestroyResult::in_use;
    slots_[number - first_].reset();
    released_.push_back(number);
    --size_;
    return DestroyResult::ok;
  }
  /// Destroys everything, in use or not: only after all users have been destroyed.
  void clear() {
    slots_.clear();
    released_.clear();
    size_ = 0;
  }

  std::size_t size() const { return size_; }
  std::uint32_t first() const { return first_; }
  std::uint32_t limit() const { return limit_; }
  /// No number from here on has been given out yet.
  std::uint32_t end() const { return first_ + static_cast<std::uint32_t>(slots_.size()); }

  /// visit(T&) for each object, by ascending number. `visit` must not add or remove objects.
  template <typename Visit>
  void for_each(Visit&& visit) const {
    for (const auto& slot : slots_) {
      if (slot) visit(slot->object);
    }
  }

  /// The same from number `from` on, for as many objects as `budget` allows, which is charged for
  /// them; numbers without an object cost less. Where to go on; end() or beyond: that was all.
  template <typename Visit>
  std::uint32_t visit_some(std::uint32_t from, VisitBudget& budget, Visit&& visit) const {
    std::size_t at = std::max(from, first_) - first_;
    for (; at < slots_.size() && !budget.spent(); ++at) {
      budget.charge(slots_[at] != nullptr);
      if (slots_[at]) visit(slots_[at]->object);
    }
    return first_ + static_cast<std::uint32_t>(at);
  }

 private:
  static constexpr std::size_t kReuseDistance = 1024;

  struct Slot {
    template <typename... Arguments>
    explicit Slot(std::uint32_t number, Arguments&&... arguments)
        : object(number, std::forward<Arguments>(arguments)...) {}
    std::uint32_t uses = 0;
    T object;
  };

  Slot* slot_of(std::uint32_t number) const {
    if (number < first_ || number - first_ >= slots_.size()) return nullptr;
    return slots_[number - first_].get();
  }
  std::optional<std::uint32_t> take_number() {
    if (first_ + slots_.size() < limit_ && released_.size() < kReuseDistance) {
      slots_.emplace_back();
      return first_ + static_cast<std::uint32_t>(slots_.size()) - 1;
    }
    if (released_.empty()) return std::nullopt;
    const std::uint32_t number = released_.front();
    released_.pop_front();
    return number;
  }

  std::uint32_t first_;
  std::uint32_t limit_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::deque<std::uint32_t> released_;
  std::size_t size_ = 0;
};

}  // namespace softhca
