// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/engine/captures.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <ctime>
#include <span>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace softhca::emulator {
namespace {

constexpr std::size_t kMaxWaiting = 32 << 20;      // bytes that the reader has not taken
constexpr Nanoseconds kFlushInterval = 2'000'000;  // while the pipe is full

using runtime::Done;
using runtime::Error;
using runtime::Result;
using runtime::UniqueFd;

}  // namespace

class Captures::Capture final : public fabric::LinkObserver {
 public:
  Capture(ControlServer::ConnectionId connection, std::string link, UniqueFd output)
      : connection_(connection), link_(std::move(link)), output_(std::move(output)) {}

  ControlServer::ConnectionId connection() const { return connection_; }
  const std::string& link() const { return link_; }
  bool waits() const { return sent_ < waiting_.size(); }
  bool broken() const { return broken_; }
  void end() { ending_ = true; }
  bool finished() const { return broken_ || (ending_ && !waits()); }

  void observe(const fabric::LinkObservation& observation) override {
    if (waiting_.size() - sent_ > kMaxWaiting) {
      ++dropped_;
      return;
    }
    (void)observation;
  }

  void flush() {
    while (waits() && !broken_) {
      const ssize_t written =
          ::write(output_.get(), waiting_.data() + sent_, waiting_.size() - sent_);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) {
        broken_ = errno != EAGAIN;
        return;
      }
      sent_ += static_cast<std::size_t>(written);
    }
    waiting_.clear();
    sent_ = 0;
  }

 private:
  ControlServer::ConnectionId connection_;
  std::string link_;
  UniqueFd output_;
  std::vector<std::byte> waiting_;
  std::size_t sent_ = 0;
  std::uint64_t dropped_ = 0;
  bool ending_ = false;
  bool broken_ = false;
};

Captures::Captures(fabric::Fabric& fabric) : fabric_(fabric) {}

Captures::~Captures() {
  for (auto& capture : captures_) fabric_.remove_observer(*capture);
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
  auto capture = std::make_unique<Capture>(connection, link, std::move(output));
  const bool has_link = fabric_.add_observer(link, *capture);
  if (!has_link && !link.empty()) return Error{ENOENT, "no link '" + link + "'"};
  captures_.push_back(std::move(capture));
  return Done{};
}

bool Captures::has_connection(ControlServer::ConnectionId connection) const {
  return std::any_of(captures_.begin(), captures_.end(), [connection](const auto& capture) {
    return capture->connection() == connection;
  });
}

void Captures::connection_closed(ControlServer::ConnectionId connection) {
  for (auto& capture : captures_) {
    if (capture->connection() != connection) continue;
    fabric_.remove_observer(*capture);
    capture->end();
  }
  flush();
}

void Captures::host_attached(const std::string& link) {
  for (auto& capture : captures_) {
    if (capture->link().empty()) fabric_.add_observer(link, *capture);
  }
}

void Captures::flush() {
  for (auto& capture : captures_) {
    capture->flush();
    if (capture->broken()) fabric_.remove_observer(*capture);
  }
  std::erase_if(captures_, [](const auto& capture) { return capture->finished(); });
}

Nanoseconds Captures::next_flush(Nanoseconds now) const {
  const bool waits = std::any_of(captures_.begin(), captures_.end(),
                                 [](const auto& capture) { return capture->waits(); });
  return waits ? now + kFlushInterval : kNever;
}

}  // namespace softhca::emulator
