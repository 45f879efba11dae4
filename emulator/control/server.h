// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "emulator/runtime/unique_fd.h"

namespace softhca::emulator {

/// The control socket's serving side: one JSON object per line in, one out, on any number of
/// connections. Never blocks; what clients send is hostile: lines, connections and unread replies
/// are bounded.
class ControlServer {
 public:
  static constexpr std::size_t kMaxLine = 64 * 1024;
  static constexpr std::size_t kMaxConnections = 64;
  static constexpr std::size_t kMaxUnsent = 64 * 1024 * 1024;

  using ConnectionId = std::uint64_t;
  struct Request {
    ConnectionId connection;
    const nlohmann::json& object;
    std::vector<runtime::UniqueFd>& descriptors;  ///< That came with the line; take what is wanted.
  };
  /// Answers one request. What it throws as nlohmann::json::exception (wrong types) becomes a
  /// refusal.
  using Handler = std::function<nlohmann::json(const Request&)>;
  using Closed = std::function<void(ConnectionId)>;

  /// `listening`: non-blocking stream socket. Throws std::system_error if descriptors run out.
  ControlServer(runtime::UniqueFd listening, Handler handler, Closed closed = {});
  ~ControlServer();
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

  /// Readable when there is something to do.
  int poll_fd() const;
  /// Handles what is there, within a bound. True if more is waiting.
  bool on_event();

  /// When all places are taken, the connection that was quiet for the longest time makes room for a
  /// new one; a kept one does not.
  void keep(ConnectionId connection);
  /// Connections that are open now.
  std::size_t connections() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// {"ok": false, "error": message, "code": code}.
nlohmann::json refusal(int code, const std::string& message);

}  // namespace softhca::emulator
