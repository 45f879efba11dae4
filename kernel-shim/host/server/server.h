// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "emulator/runtime/result.h"
#include "emulator/runtime/unique_fd.h"
#include "kernel-shim/host/loop/event_loop.h"
#include "kernel-shim/host/server/packet.h"
#include "kernel-shim/host/uverbs/context.h"
#include "kernel-shim/host/uverbs/ending_contexts.h"

namespace softhca::shim {

/// What the server asks of the daemon around it.
class ServerOwner {
 public:
  virtual ~ServerOwner() = default;
  /// A `refresh` request: counters in the device tree are wanted up to date.
  virtual void refresh_tree() = 0;
  virtual void control(ControlAction action) = 0;
  virtual bool persistent() const = 0;
  /// A lease or context came or went.
  virtual void users_changed() = 0;
};

/// kernel.sock: contexts, leases and control connections of one virtual host.
class Server {
 public:
  /// Device number of uverbs0, as in sysfs.
  static constexpr std::uint32_t kMajor = 231;
  static constexpr std::uint32_t kMinor = 192;
  static constexpr std::size_t kMaxConnections = 4096;

  Server(EventLoop& loop, IbDevice& device, ServerOwner& owner);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  runtime::Result<runtime::Done> listen(const std::string& path);
  /// Takes no new connections; the socket file goes.
  void stop_listening();
  /// Closes every connection; contexts destroy what they own.
  void close_all();

  std::uint32_t leases() const { return leases_; }
  /// With those that are being destroyed.
  std::uint32_t contexts() const { return contexts_; }

 private:
  enum class Role : std::uint8_t { unknown, context, lease, control };
  struct Connection {
    runtime::UniqueFd socket;
    Role role = Role::unknown;
    pid_t pid = -1;
    std::unique_ptr<Context> context;
  };

  void accept();
  void rest();
  void serve(int fd);
  void close(int fd);
  void context_ended();
  int handle(Connection& connection, Packet& packet, Reply& reply);
  int hello(Connection& connection, Packet& packet, Reply& reply);
  int lease(Connection& connection);
  int control(Connection& connection, const Packet& packet, Reply& reply);
  int command(Connection& connection, Packet& packet, Reply& reply);
  static int map(Connection& connection, const Packet& packet, Reply& reply);

  EventLoop& loop_;
  IbDevice& device_;
  ServerOwner& owner_;
  std::string path_;
  runtime::UniqueFd listener_;
  std::optional<std::uint64_t> rest_timer_;  ///< Out of descriptors: the listener is not watched.
  PacketReceiver receiver_;
  std::map<int, std::unique_ptr<Connection>> connections_;
  std::uint32_t leases_ = 0;
  std::uint32_t contexts_ = 0;
  EndingContexts ending_;
};

}  // namespace softhca::shim
