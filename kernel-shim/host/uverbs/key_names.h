// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>

namespace softhca::shim {

/// Variant bytes of keys that had several names in one life (hw-model/runtime/mkey_state.h). The
/// device gives an index away again after a number of others that is a multiple of 256, so that
/// variants which count registrations move on by one there: to the second name of such a key.
class KeyNames {
 public:
  /// A key that was created as `first` ends as `last`; between them it had every name.
  void ended(std::uint32_t first, std::uint32_t last) {
    const std::uint32_t index = first >> 8;
    if (first == last && !next_.contains(index)) return;
    next_[index] = static_cast<std::uint8_t>(last + 1);
  }
  /// The variant byte that the next key with this index must have, if it matters.
  std::optional<std::uint8_t> find(std::uint32_t index) const {
    const auto found = next_.find(index);
    if (found == next_.end()) return std::nullopt;
    return found->second;
  }

 private:
  std::unordered_map<std::uint32_t, std::uint8_t> next_;
};

}  // namespace softhca::shim
