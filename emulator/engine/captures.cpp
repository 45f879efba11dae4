// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/engine/captures.h"

#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include "emulator/capture/link_capture.h"

namespace softhca::emulator {
namespace {

constexpr Nanoseconds kFlushInterval = 2'000'000;

using runtime::Done;
using runtime::Error;
using runtime::Result;
using runtime::UniqueFd;

}  // namespace

struct Captures::Capture {
  Capture(ControlServer::ConnectionId from, std::string on, UniqueFd output, const Clock& clock)
      : connection(from),
        link(std::move(on)),
        packets(std::make_unique<capture::PcapngWriter>(output.release()), clock) {}

  bool finished() const { return broken || (ending && !packets.waits()); }

  ControlServer::ConnectionId connection;
  std::string link;  // empty: all
  capture::LinkCapture packets;
  bool ending = false;  // its client is gone: goes when all is written
  bool broken = false;  // its reader is gone
};

Captures::Captures(fabric::Fabric& fabric, const Clock& clock) : fabric_(fabric), clock_(clock) {}

Captures::~Captures() {
  for (auto& capture : captures_) fabric_.remove_observer(capture->packets);
}

Result<Done> Captures::start(ControlServer::ConnectionId connection, const std::string& link,
                             UniqueFd output) {
  if (has_connection(connection)) return Error{EBUSY, "this connection captures already"};
  struct stat status {};
  if (::fstat(output.get(), &status) != 0 || !S_ISFIFO(status.st_mode)) {
    return Error{EINVAL, "capture: the descriptor is not a pipe"};
  }
  const int flags = ::fcntl(output.get(), F_GETFL);
  if (flags < 0 || ::fcntl(output.get(), F_SETFL, flags | O_NONBLOCK) != 0) {
    return runtime::system_error(errno, "capture");
  }
  auto capture = std::make_unique<Capture>(connection, link, std::move(output), clock_);
  const bool has_link = fabric_.add_observer(link, capture->packets);
  if (!has_link && !link.empty()) return Error{ENOENT, "no link '" + link + "'"};
  spdlog::info("capture on {} begins", link.empty() ? "all links" : link);
  captures_.push_back(std::move(capture));
  return Done{};
}

bool Captures::has_connection(ControlServer::ConnectionId connection) const {
  return std::any_of(captures_.begin(), captures_.end(), [connection](const auto& capture) {
    return capture->connection == connection;
  });
}

void Captures::connection_closed(ControlServer::ConnectionId connection) {
  for (auto& capture : captures_) {
    if (capture->connection != connection) continue;
    fabric_.remove_observer(capture->packets);
    capture->ending = true;
  }
  flush();
}

void Captures::host_attached(const std::string& link) {
  for (auto& capture : captures_) {
    if (capture->link.empty() && !capture->ending) fabric_.add_observer(link, capture->packets);
  }
}

void Captures::host_detached(const std::string& link) {
  for (auto& capture : captures_) capture->ending |= capture->link == link;
}

void Captures::flush() {
  last_flush_ = clock_.now();
  for (auto& capture : captures_) {
    capture->broken = static_cast<bool>(capture->packets.flush());
    if (!capture->finished()) continue;
    fabric_.remove_observer(capture->packets);
    spdlog::info("capture on {} ends: {} packets, {} dropped because the reader was too slow",
                 capture->link.empty() ? "all links" : capture->link, capture->packets.packets(),
                 capture->packets.dropped());
  }
  std::erase_if(captures_, [](const auto& capture) { return capture->finished(); });
}

void Captures::flush_if_due() {
  if (clock_.now() >= next_flush()) flush();
}

Nanoseconds Captures::next_flush() const {
  const bool due = std::any_of(captures_.begin(), captures_.end(), [](const auto& capture) {
    return capture->packets.waits() || capture->ending;
  });
  return due ? last_flush_ + kFlushInterval : kNever;
}

}  // namespace softhca::emulator
