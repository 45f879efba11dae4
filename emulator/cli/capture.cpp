// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "emulator/cli/commands.h"
#include "emulator/cli/fabric_access.h"
#include "emulator/cli/pcapng_counter.h"
#include "emulator/runtime/unique_fd.h"

namespace softhca::cli {
namespace {

using nlohmann::json;
using runtime::UniqueFd;

struct CaptureOptions {
  std::string fabric;
  std::string link;
  std::string file;
  std::uint64_t count = 0;
};

UniqueFd open_output(const std::string& file) {
  if (file == "-") {
    if (::isatty(STDOUT_FILENO) != 0) {
      fail("capture: pcapng on a terminal is of no use; redirect it, or name a file", kExitUsage);
    }
    return UniqueFd(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
  }
  UniqueFd output(::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!output) fail(file + ": " + std::strerror(errno), kExitFailed);
  return output;
}

UniqueFd interrupt_signals() {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGINT);
  ::sigaddset(&signals, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  return UniqueFd(::signalfd(-1, &signals, SFD_CLOEXEC));
}

struct Pipe {
  UniqueFd read_end;
  UniqueFd write_end;
};

Pipe make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    fail(std::string("pipe: ") + std::strerror(errno), kExitFailed);
  Pipe pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
  constexpr int kPipeSize = 1 << 20;  // as much as an unprivileged user gets by default
  ::fcntl(pipe.write_end.get(), F_SETPIPE_SZ, kPipeSize);
  return pipe;
}

/// False: the output takes no more (a reader that has gone is a normal end).
bool write_all(int fd, const std::byte* bytes, std::size_t size) {
  while (size > 0) {
    const ssize_t written = ::write(fd, bytes, size);
    if (written < 0) {
      if (errno == EINTR) continue;
      if (errno == EPIPE) return false;
      fail(std::string("capture: ") + std::strerror(errno), kExitFailed);
    }
    bytes += written;
    size -= static_cast<std::size_t>(written);
  }
  return true;
}

/// Copies until the emulator ends the stream, which it does when the connection's sending side
/// closes: on a signal, or when enough packets are there.
std::uint64_t copy(const Pipe& pipe, const UniqueFd& output, const UniqueFd& signals,
                   int connection, std::uint64_t count) {
  PcapngCounter counter(count);
  std::array<std::byte, 65536> bytes;
  while (true) {
    std::array<pollfd, 3> polls{
        {{pipe.read_end.get(), POLLIN, 0}, {signals.get(), POLLIN, 0}, {output.get(), 0, 0}}};
    if (::poll(polls.data(), polls.size(), -1) < 0 && errno != EINTR) break;
    if (polls[1].revents != 0) {
      signalfd_siginfo signal;
      [[maybe_unused]] const ssize_t got = ::read(signals.get(), &signal, sizeof(signal));
      ::shutdown(connection, SHUT_WR);
    }
    if ((polls[2].revents & POLLERR) != 0) break;  // whom we write for has gone
    if (polls[0].revents == 0) continue;
    const ssize_t got = ::read(pipe.read_end.get(), bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    const std::size_t wanted = counter.feed({bytes.data(), static_cast<std::size_t>(got)});
    if (!write_all(output.get(), bytes.data(), wanted) || counter.full()) break;
  }
  return counter.packets();
}

void capture(const CaptureOptions& options) {
  auto client = connect_or_fail(options.fabric);
  const UniqueFd output = open_output(options.file);
  Pipe pipe = make_pipe();
  const UniqueFd signals = interrupt_signals();
  ::signal(SIGPIPE, SIG_IGN);
  const auto started = client.request_with_fd(json{{"command", "capture"}, {"link", options.link}},
                                              pipe.write_end.get());
  if (!started) fail(started.error());
  pipe.write_end.reset();
  const std::string what = options.link.empty() ? "all links" : "link " + options.link;
  std::fprintf(stderr, "softhca: capturing on %s; Ctrl-C ends\n", what.c_str());
  const std::uint64_t packets = copy(pipe, output, signals, client.fd(), options.count);
  std::fprintf(stderr, "softhca: %llu packets\n", static_cast<unsigned long long>(packets));
}

}  // namespace

void add_capture(CLI::App& app) {
  auto options = std::make_shared<CaptureOptions>();
  CLI::App* command = app.add_subcommand(
      "capture", "Write the packets of a link as pcapng (for tshark, Wireshark)");
  add_fabric_option(*command, options->fabric);
  command->add_option("link", options->link, "Name of the link: that of its host (default: all)");
  command->add_option("-w,--write", options->file, "File; - is the standard output")->required();
  command->add_option("-c,--count", options->count, "End after so many packets")
      ->check(CLI::NonNegativeNumber);
  command->callback([options] { capture(*options); });
}

}  // namespace softhca::cli
