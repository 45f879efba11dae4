// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/vm/command_relay.h"

#include <cerrno>
#include <csignal>

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "emulator/runtime/unix_socket.h"

namespace softhca::vm {
namespace {

using runtime::Result;
using runtime::UniqueFd;

/// Towards the agent; clients are not read beyond it.
constexpr std::size_t kMaxToAgent = 256 * 1024;
/// Towards a client; the agent is not read beyond it.
constexpr std::size_t kMaxToClient = 4 * 1024 * 1024;

bool would_block() {
  return errno == EAGAIN || errno == EINTR;
}

}  // namespace

Result<CommandRelay> CommandRelay::create(const GuestPaths& paths) {
  auto listener = runtime::listen_unix(paths.commands, SOCK_STREAM);
  if (!listener) return listener.error();
  ::unlink(paths.agent.c_str());
  return CommandRelay(std::move(*listener), paths.agent);
}

bool CommandRelay::has_room_for_output() const {
  for (const auto& [id, client] : clients_) {
    if (client.waiting.size() >= kMaxToClient) return false;
  }
  return true;
}

void CommandRelay::watch(std::vector<pollfd>& polled) const {
  polled.push_back({listener_.get(), POLLIN, 0});
  const short from_agent = has_room_for_output() ? POLLIN : 0;
  const short to_agent = to_agent_.empty() ? 0 : POLLOUT;
  polled.push_back({agent_.get(), static_cast<short>(from_agent | to_agent), 0});
  // Until the agent is there, clients wait.
  const short from_client = is_up_ && to_agent_.size() < kMaxToAgent ? POLLIN : 0;
  for (const auto& [id, client] : clients_) {
    const short to_client = client.waiting.empty() ? 0 : POLLOUT;
    polled.push_back({client.socket.get(), static_cast<short>(from_client | to_client), 0});
  }
}

void CommandRelay::serve(const std::vector<pollfd>& polled, std::size_t first) {
  const std::size_t known_clients = polled.size() - first - 2;
  std::size_t index = 0;
  for (auto& [id, client] : clients_) {
    if (index == known_clients) break;
    const short events = polled[first + 2 + index++].revents;
    if ((events & (POLLIN | POLLHUP | POLLERR)) != 0) read_client(id, client);
    if ((events & POLLOUT) != 0 && !send_waiting(client.socket.get(), client.waiting)) {
      client.has_left = true;
    }
  }
  if (!agent_) {
    connect_agent();
  } else {
    if ((polled[first + 1].revents & (POLLIN | POLLHUP | POLLERR)) != 0) read_agent();
    if (agent_ && !send_waiting(agent_.get(), to_agent_)) agent_.reset();
  }
  if ((polled[first].revents & POLLIN) != 0) accept_client();
  remove_clients();
}

void CommandRelay::connect_agent() {
  auto socket = runtime::connect_unix(agent_path_, SOCK_STREAM);
  if (!socket) return;
  agent_ = std::move(*socket);
  ::fcntl(agent_.get(), F_SETFL, O_NONBLOCK);
}

void CommandRelay::accept_client() {
  UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket || !runtime::peer_is_trusted(socket.get())) return;
  clients_[next_client_++].socket = std::move(socket);
}

void CommandRelay::read_agent() {
  char buffer[65536];
  const ssize_t got = ::read(agent_.get(), buffer, sizeof(buffer));
  if (got < 0 && would_block()) return;
  if (got <= 0) {
    agent_.reset();
    restart();
    is_up_ = false;
    return;
  }
  reader_.append({buffer, static_cast<std::size_t>(got)});
  while (auto frame = reader_.next()) handle_agent(*frame);
}

void CommandRelay::handle_agent(const Frame& frame) {
  if (frame.type == FrameType::kHello) {
    restart();
    is_up_ = true;
    to_agent_ = kSyncMark;
    return;
  }
  const auto channel = channels_.find(frame.channel);
  if (channel == channels_.end()) return;
  const auto client = clients_.find(channel->second.client);
  if (client != clients_.end()) {
    append_frame(client->second.waiting, frame.type, channel->second.number, frame.payload);
  }
  if (frame.type == FrameType::kExit) channels_.erase(channel);
}

/// What ran in the guest has gone with it.
void CommandRelay::restart() {
  for (const auto& [number, channel] : channels_) {
    const auto client = clients_.find(channel.client);
    if (client == clients_.end()) continue;
    append_frame(client->second.waiting, FrameType::kLost, channel.number);
  }
  channels_.clear();
  to_agent_.clear();
}

void CommandRelay::read_client(std::uint64_t id, Client& client) {
  char buffer[65536];
  const ssize_t got = ::read(client.socket.get(), buffer, sizeof(buffer));
  if (got < 0 && would_block()) return;
  if (got <= 0) {
    client.has_left = true;
    return;
  }
  client.reader.append({buffer, static_cast<std::size_t>(got)});
  while (auto frame = client.reader.next()) handle_client(id, *frame);
}

void CommandRelay::handle_client(std::uint64_t id, const Frame& frame) {
  if (frame.type == FrameType::kRun) {
    channels_[next_channel_] = {id, frame.channel};
    append_frame(to_agent_, FrameType::kRun, next_channel_++, frame.payload);
    return;
  }
  for (const auto& [number, channel] : channels_) {
    if (channel.client != id || channel.number != frame.channel) continue;
    append_frame(to_agent_, frame.type, number, frame.payload);
  }
}

void CommandRelay::remove_clients() {
  for (auto entry = clients_.begin(); entry != clients_.end();) {
    if (!entry->second.has_left) {
      ++entry;
      continue;
    }
    for (const auto& [number, channel] : channels_) {
      if (channel.client != entry->first) continue;
      const char kill = SIGKILL;
      append_frame(to_agent_, FrameType::kSignal, number, {&kill, 1});
    }
    entry = clients_.erase(entry);
  }
}

/// False: the other end has gone.
bool CommandRelay::send_waiting(int socket, std::string& waiting) {
  if (waiting.empty()) return true;
  const ssize_t put = ::send(socket, waiting.data(), waiting.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (put > 0) waiting.erase(0, static_cast<std::size_t>(put));
  return put >= 0 || would_block();
}

}  // namespace softhca::vm
