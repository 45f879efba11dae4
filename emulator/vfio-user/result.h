// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cassert>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace softhca::vfio_user {

enum class ErrorKind : std::uint8_t {
  system,        ///< A system call on this side failed; `code` is its errno.
  timeout,       ///< The peer did not answer in time; the connection is unusable afterwards.
  disconnected,  ///< The peer closed the connection, or it was closed after an earlier error.
  protocol,      ///< The peer broke the protocol; the connection is unusable afterwards.
  refused,   ///< The peer answered with an error; `code` is the errno it sent. The connection goes
             ///< on.
  argument,  ///< The caller asked for what the protocol cannot express; nothing was sent.
};

struct Error {
  ErrorKind kind = ErrorKind::system;
  int code = 0;         ///< errno, 0 if none applies.
  std::string message;  ///< What was tried and why it failed, one line.
};

/// A value or an Error.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return value_.has_value(); }
  explicit operator bool() const { return ok(); }
  /// Only if ok().
  T& value() {
    assert(ok());
    return *value_;
  }
  const T& value() const {
    assert(ok());
    return *value_;
  }
  T& operator*() { return value(); }
  const T& operator*() const { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  /// Only if not ok().
  const Error& error() const { return error_; }

 private:
  std::optional<T> value_;
  Error error_;
};

/// Success or an Error.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  /// Only if not ok().
  const Error& error() const { return *error_; }

 private:
  std::optional<Error> error_;
};

}  // namespace softhca::vfio_user
