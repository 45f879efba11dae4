// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <poll.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <thread>

#include "tests/lifetime/watched_events.h"
#include "tests/verbs/endpoint.h"
#include "tests/verbs/side.h"

/// softhca_lifetime_flow: one end of a connection that is used without pause until it breaks, the
/// device is lost, or standard input ends. The client writes bytes to the server by RDMA, reads
/// them back and compares. Prints what happens, one line each:
///   ready                      connected
///   round N                    so many rounds were right (ten times a second)
///   event NAME                 an asynchronous event
///   status N (TEXT)            a work request failed
///   lost                       the device is gone
///   ended N                    standard input (or the other end) ended after N good rounds
namespace softhca::lifetime {
namespace {

using verbs_check::Buffer;
using verbs_check::Completed;
using verbs_check::CompletionQueue;
using verbs_check::Device;
using verbs_check::QpOptions;
using verbs_check::QueuePair;
using verbs_check::Request;
using verbs_check::require;
using verbs_check::Side;
using verbs_check::Style;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kSize = 20'000;

/// No completion comes, and the device is not known to be lost: what must never be.
constexpr std::chrono::seconds kPatience{10};

struct Options {
  std::string expected_provider;
  std::uint16_t server_port = 0;
  std::uint16_t client_port = 0;
  unsigned timeout = 12;
  unsigned retry_count = 3;
  unsigned pause_us = 2000;
  bool polls = false;
};

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

bool input_ended() {
  pollfd readable{STDIN_FILENO, POLLIN, 0};
  if (::poll(&readable, 1, 0) != 1) return false;
  char byte = 0;
  return ::read(STDIN_FILENO, &byte, 1) <= 0;
}

/// Where the other end's memory is.
struct Range {
  std::uint64_t address;
  std::uint32_t rkey;
};

/// One end: everything that a daemon has to clean up when this process is killed.
struct End {
  End(const Options& options, Side& side)
      : style{false, false, !options.polls, IBV_MTU_1024},
        target(device, kSize),
        source(device, kSize),
        cq(device, 64, style),
        qp(device, cq, cq, style, qp_options(options)) {
    require(device.provider() == options.expected_provider,
            "bound to provider " + device.provider());
    say("provider " + device.provider());
    qp.connect(side);
    remote = side.exchange(Range{target.address(), target.rkey()});
  }

  static QpOptions qp_options(const Options& options) {
    QpOptions qp;
    qp.timeout = static_cast<std::uint8_t>(options.timeout);
    qp.retry_count = static_cast<std::uint8_t>(options.retry_count);
    return qp;
  }

  Style style;
  Device device{""};
  Buffer target;
  Buffer source;
  CompletionQueue cq;
  QueuePair qp;
  Range remote{};
};

/// A completion; nullopt when the device was lost first.
std::optional<Completed> wait(CompletionQueue& cq, const WatchedEvents& events, bool sleeps) {
  const auto deadline = Clock::now() + kPatience;
  Completed completed;
  while (true) {
    if (cq.try_poll(completed)) return completed;
    if (events.device_lost()) return std::nullopt;
    require(Clock::now() < deadline, "no completion, and the device is not lost");
    if (!sleeps) {
      std::this_thread::yield();
      continue;
    }
    try {
      cq.arm(false);
      if (cq.try_poll(completed)) return completed;
      cq.event_within(std::chrono::milliseconds(20));
    } catch (const verbs_check::Failure&) {
      // The event channel has ended: the reason must come the other way, too.
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      if (!events.device_lost()) throw;
    }
  }
}

enum class Outcome { good, broken, lost };

/// Posts a request and waits for its completion.
Outcome perform(End& end, const WatchedEvents& events, ibv_wr_opcode opcode, Buffer& local) {
  Request request;
  request.opcode = opcode;
  request.sges = {local.sge(0, kSize)};
  request.remote_address = end.remote.address;
  request.rkey = end.remote.rkey;
  end.qp.post(request);
  const auto completed = wait(end.cq, events, end.style.events);
  if (!completed) return Outcome::lost;
  if (completed->status == IBV_WC_SUCCESS) return Outcome::good;
  say("status " + std::to_string(completed->status) + " (" + ibv_wc_status_str(completed->status) +
      ")");
  return Outcome::broken;
}

void use(End& end, const WatchedEvents& events, const Options& options) {
  Buffer back(end.device, kSize);
  auto next_report = Clock::now();
  std::uint32_t round = 0;
  while (!input_ended()) {
    end.source.fill(round, 0, kSize);
    back.clear();
    Outcome outcome = perform(end, events, IBV_WR_RDMA_WRITE, end.source);
    if (outcome == Outcome::good) outcome = perform(end, events, IBV_WR_RDMA_READ, back);
    if (outcome == Outcome::lost) say("lost");
    if (outcome != Outcome::good) return;
    back.verify(round, 0, kSize, "what was read back in round " + std::to_string(round));
    ++round;
    if (Clock::now() >= next_report) {
      say("round " + std::to_string(round));
      next_report = Clock::now() + std::chrono::milliseconds(100);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(options.pause_us));
  }
  say("ended " + std::to_string(round));
}

/// The server's processor has no part in what the client does.
void stand_by(const WatchedEvents& events, int socket) {
  while (!events.device_lost()) {
    pollfd inputs[] = {{STDIN_FILENO, POLLIN, 0}, {socket, POLLIN, 0}};
    if (::poll(inputs, 2, 20) <= 0) continue;
    if (inputs[1].revents != 0 || input_ended()) {
      say("ended 0");
      return;
    }
  }
  say("lost");
}

void run(const Options& options) {
  const bool is_server = options.server_port != 0;
  const int socket = is_server ? verbs_check::accept_peer(options.server_port)
                               : verbs_check::connect_peer(options.client_port);
  Side side(is_server ? 0 : 1, socket);
  End end(options, side);
  const WatchedEvents events(end.device.context());
  say("ready");
  if (is_server) {
    stand_by(events, socket);
  } else {
    use(end, events, options);
  }
}

}  // namespace
}  // namespace softhca::lifetime

int main(int argc, char** argv) {
  softhca::lifetime::Options options;
  CLI::App app{"One end of a connection that is in use"};
  app.add_option("--provider", options.expected_provider)->required();
  app.add_option("--server", options.server_port, "Listen on this TCP port for the other end");
  app.add_option("--client", options.client_port, "Connect to the other end");
  app.add_option("--timeout", options.timeout, "ACK timeout, as ibv_qp_attr.timeout");
  app.add_option("--retry-count", options.retry_count);
  app.add_option("--pause-us", options.pause_us, "Between rounds");
  app.add_flag("--poll", options.polls, "Poll instead of sleeping on completion events");
  CLI11_PARSE(app, argc, argv);
  try {
    softhca::lifetime::run(options);
  } catch (const std::exception& failure) {
    softhca::lifetime::say(std::string("FAILED ") + failure.what());
    return 1;
  }
  softhca::lifetime::say("done");
  return 0;
}
