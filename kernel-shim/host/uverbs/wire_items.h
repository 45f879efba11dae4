// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// How a message of the protocol is taken apart: structures one after the other, data padded to 8
// octets.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>

namespace softhca::shim {

/// Copies the next structure out of the message and steps over it; false when the message is too
/// short.
template <typename T>
bool take(std::span<const std::byte>& from, T& to) {
  if (from.size() < sizeof(T)) return false;
  std::memcpy(static_cast<void*>(&to), from.data(), sizeof(T));
  from = from.subspan(sizeof(T));
  return true;
}

/// Octets that data of this length takes in a message.
constexpr std::size_t padded(std::size_t length) {
  return (length + 7) & ~std::size_t{7};
}

}  // namespace softhca::shim
