// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <string>
#include <utility>
#include <variant>

namespace softhca::runtime {

/// Why something failed: an errno value and a sentence for the user (without trailing newline).
struct Error {
  int code = 0;
  std::string message;
};

/// `Error` from errno value `code`: "<what>: <text of code>".
Error system_error(int code, const std::string& what);

/// A value or the reason why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT(*-explicit-*)
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(*-explicit-*)

  explicit operator bool() const { return state_.index() == 0; }
  T& value() { return std::get<0>(state_); }
  const T& value() const { return std::get<0>(state_); }
  T& operator*() { return value(); }
  T* operator->() { return &value(); }
  const Error& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, Error> state_;
};

/// For operations without a value: `return Done{};`.
using Done = std::monostate;

}  // namespace softhca::runtime
