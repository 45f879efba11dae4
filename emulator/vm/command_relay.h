// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <poll.h>

#include "emulator/runtime/result.h"
#include "emulator/runtime/unique_fd.h"
#include "emulator/vm/frame.h"
#include "emulator/vm/options.h"

namespace softhca::vm {

/// Carries the commands of any number of clients to the one agent of a guest and their results
/// back. Clients speak frames (frame.h) over GuestPaths::commands; their channels are their own.
/// A client that leaves has its commands killed. Never blocks.
///
/// A client that does not read what its command writes holds the others up in time: the agent's
/// port is one stream.
class CommandRelay {
 public:
  static runtime::Result<CommandRelay> create(const GuestPaths& paths);

  /// True once the guest's agent has started (again).
  bool is_up() const { return is_up_; }
  /// True while QEMU is not yet connected to: call serve() every few milliseconds.
  bool is_connecting() const { return !agent_; }

  /// Adds what to poll for to `polled`; serve() gets the same vector after the poll, with the index
  /// of the first added entry.
  void watch(std::vector<pollfd>& polled) const;
  void serve(const std::vector<pollfd>& polled, std::size_t first);

 private:
  struct Client {
    runtime::UniqueFd socket;
    FrameReader reader;
    std::string waiting;
    bool has_left = false;
  };
  struct Channel {
    std::uint64_t client = 0;
    std::uint32_t number = 0;  ///< As the client calls it.
  };

  CommandRelay(runtime::UniqueFd listener, std::string agent_path)
      : listener_(std::move(listener)), agent_path_(std::move(agent_path)) {}

  bool has_room_for_output() const;
  void connect_agent();
  void accept_client();
  void read_agent();
  void handle_agent(const Frame& frame);
  void restart();
  void read_client(std::uint64_t id, Client& client);
  void handle_client(std::uint64_t id, const Frame& frame);
  void remove_clients();
  static bool send_waiting(int socket, std::string& waiting);

  runtime::UniqueFd listener_;
  std::string agent_path_;
  runtime::UniqueFd agent_;
  bool is_up_ = false;
  FrameReader reader_;
  std::string to_agent_;
  std::map<std::uint64_t, Client> clients_;
  std::uint64_t next_client_ = 1;
  std::map<std::uint32_t, Channel> channels_;  ///< By number towards the agent.
  std::uint32_t next_channel_ = 1;
};

}  // namespace softhca::vm
