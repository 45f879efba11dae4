// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "hw-model/ib/packet.h"
#include "hw-model/ib/sa.h"

namespace softhca::fabric {

/// The record that a request of the subnet administration class brings, of which the component
/// mask says what counts.
struct SaQuery {
  std::uint64_t components = 0;
  const std::uint8_t* record = nullptr;  ///< 200 bytes.
  bool trusted = false;                  ///< The SM_Key is right (IBA 15.4.1.2).

  bool has(std::uint64_t component) const { return (components & component) == component; }
  /// True if the component is not asked for, or the field has this value.
  template <typename Field>
  bool admits(std::uint64_t component, std::uint64_t value) const {
    return !has(component) || Field::get(record) == value;
  }
};

/// Records of one kind, packed as they are in a GetTable response: each padded to 8 bytes.
class RecordList {
 public:
  /// Records at most; a request for more is refused.
  static constexpr std::size_t kLimit = 4096;

  explicit RecordList(std::size_t record_size) : size_(record_size), padded_((size_ + 7) & ~7UL) {}

  std::size_t count() const { return bytes_.size() / padded_; }
  bool full() const { return count() >= kLimit; }
  std::size_t record_size() const { return size_; }
  /// In units of 8 bytes.
  std::uint16_t attribute_offset() const { return static_cast<std::uint16_t>(padded_ / 8); }
  /// A new record, all zeros; valid until the next.
  std::uint8_t* add() {
    bytes_.resize(bytes_.size() + padded_);
    return bytes_.data() + bytes_.size() - padded_;
  }
  const std::uint8_t* front() const { return bytes_.data(); }
  std::vector<std::uint8_t> take() { return std::move(bytes_); }

 private:
  std::size_t size_;
  std::size_t padded_;
  std::vector<std::uint8_t> bytes_;
};

/// Whether `have` fits what a record asks by selector and value (IBA 15.2.5.16). Both are on the
/// same scale.
inline bool selector_admits(std::uint64_t selector, std::uint64_t wanted, std::uint64_t have) {
  switch (static_cast<ib::Selector>(selector)) {
    case ib::Selector::greater:
      return have > wanted;
    case ib::Selector::less:
      return have < wanted;
    case ib::Selector::exactly:
      return have == wanted;
    case ib::Selector::largest:
      return true;
  }
  return false;
}

inline ib::Gid gid_at(const std::uint8_t* bytes) {
  ib::Gid gid;
  std::copy_n(bytes, gid.size(), gid.begin());
  return gid;
}
inline void put_gid(std::uint8_t* bytes, const ib::Gid& gid) {
  std::copy(gid.begin(), gid.end(), bytes);
}

}  // namespace softhca::fabric
