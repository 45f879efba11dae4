// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "emulator/runtime/result.h"
#include "emulator/runtime/unique_fd.h"

namespace softhca::emulator {

/// A connection to an emulator's control socket: one JSON object per line and direction.
///
/// Requests have a string "command" (emulator/engine/commands.h lists them); replies have
/// "ok": true, or "ok": false with "error" (a sentence for the user) and "code" (errno).
class ControlClient {
 public:
  static constexpr std::chrono::milliseconds kDefaultTimeout{5000};

  /// ENOENT or ECONNREFUSED: no emulator runs for this fabric.
  static runtime::Result<ControlClient> connect(std::string_view fabric);
  static runtime::Result<ControlClient> connect_path(const std::string& control_socket);

  /// Sends `command` and waits for its reply. An error of the connection (ETIMEDOUT; ECONNRESET
  /// when the emulator ended) and a refusal by the emulator ("ok": false) both come back as Error.
  runtime::Result<nlohmann::json> request(const nlohmann::json& command,
                                          std::chrono::milliseconds timeout = kDefaultTimeout);
  /// The same, and gives the emulator a copy of descriptor `fd`.
  runtime::Result<nlohmann::json> request_with_fd(
      const nlohmann::json& command, int fd, std::chrono::milliseconds timeout = kDefaultTimeout);

  /// The descriptor, for poll(): becomes readable at end of file when the emulator ends.
  int fd() const { return socket_.get(); }

 private:
  explicit ControlClient(runtime::UniqueFd socket) : socket_(std::move(socket)) {}

  using Deadline = std::chrono::steady_clock::time_point;
  runtime::Result<runtime::Done> send_line(const std::string& line, int fd, Deadline deadline);
  runtime::Result<std::string> receive_line(Deadline deadline);

  runtime::UniqueFd socket_;
  std::string received_;
};

}  // namespace softhca::emulator
