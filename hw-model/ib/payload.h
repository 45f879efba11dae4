// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

namespace softhca::ib {

class Payload;

/// Memory that packets refer to instead of holding a copy: registered memory of a device. Before
/// the memory goes away, or may change its meaning, its owner calls recall().
class PayloadLender {
 public:
  PayloadLender() = default;
  PayloadLender(const PayloadLender&) = delete;
  PayloadLender& operator=(const PayloadLender&) = delete;
  ~PayloadLender() { recall(); }

  /// Every payload that refers to the memory makes its own copy now.
  void recall();
  bool lends() const { return first_ != nullptr; }

 private:
  friend class Payload;
  Payload* first_ = nullptr;
};

/// Payload bytes of a packet, without pad: its own, lent ones, or a view of its sender's memory.
/// Copies are always own ones, and so is what is written to. Resizing leaves new bytes with any
/// value.
class Payload {
 public:
  Payload() = default;
  Payload(const Payload& other) { assign(other.data_, other.size_); }
  Payload& operator=(const Payload& other) {
    if (this != &other) assign(other.data_, other.size_);
    return *this;
  }
  Payload(Payload&& other) noexcept { take(other); }
  Payload& operator=(Payload&& other) noexcept {
    if (this != &other) {
      give_back();
      take(other);
    }
    return *this;
  }
  ~Payload() { give_back(); }

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const std::byte* data() const { return data_; }
  const std::byte* begin() const { return data_; }
  const std::byte* end() const { return data_ + size_; }
  std::byte operator[](std::size_t i) const { return data_[i]; }
  /// To write to: lent bytes are copied first.
  std::byte* bytes() {
    own();
    return storage_.get();
  }

  void resize(std::size_t size) {
    own();
    reserve(size);
    size_ = size;
  }
  void resize(std::size_t size, std::byte value) {
    const std::size_t before = size_;
    resize(size);
    if (size > before) std::memset(storage_.get() + before, static_cast<int>(value), size - before);
  }
  void assign(const std::byte* from, std::size_t size) {
    give_back();
    size_ = 0;
    reserve(size);
    if (size != 0) std::memcpy(storage_.get(), from, size);
    size_ = size;
  }
  template <typename Iterator>
  void assign(Iterator first, Iterator last) {
    resize(static_cast<std::size_t>(last - first));
    std::copy(first, last, storage_.get());
  }
  void assign(std::size_t size, std::byte value) {
    resize(0);
    resize(size, value);
  }
  void clear() {
    give_back();
    data_ = storage_.get();
    size_ = 0;
  }

  /// Refers to memory of `lender`, which outlives the reference or recalls it.
  void refer(PayloadLender& lender, const std::byte* memory, std::size_t size);
  bool is_lent() const { return lender_ != nullptr; }

  /// Shows memory that stays as it is while the sender waits for the packet to be taken. Whoever
  /// moves the payload elsewhere gets a copy.
  void view(const std::byte* memory, std::size_t size) {
    give_back();
    data_ = memory;
    size_ = size;
  }
  bool is_view() const { return lender_ == nullptr && size_ != 0 && data_ != storage_.get(); }

  /// Moves the first `size` bytes to `front`; lent ones are lent to both.
  void move_front(std::size_t size, Payload& front);

  friend bool operator==(const Payload& a, const Payload& b) {
    return a.size_ == b.size_ && (a.size_ == 0 || std::memcmp(a.data_, b.data_, a.size_) == 0);
  }

 private:
  friend class PayloadLender;

  /// Makes room; keeps the bytes if they are own ones.
  void reserve(std::size_t size);
  /// Copies what is not its own.
  void own() {
    if (data_ != storage_.get()) copy();
  }
  void copy();
  void give_back() {
    if (lender_ != nullptr) unlink();
  }
  void unlink();
  void take(Payload& other);

  std::unique_ptr<std::byte[]> storage_;
  std::size_t capacity_ = 0;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  PayloadLender* lender_ = nullptr;
  Payload* next_ = nullptr;   // of the lender's list
  Payload** link_ = nullptr;  // What points to this one.
};

}  // namespace softhca::ib
