// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/verbs/endpoint.h"
#include "tests/verbs/side.h"

/// softhca_lifetime_fork: a program that has its device open, memory registered and messages on
/// their way, and forks. Whatever the child does, the parent's messages arrive whole.
namespace softhca::lifetime {
namespace {

using verbs_check::Buffer;
using verbs_check::CompletionQueue;
using verbs_check::Device;
using verbs_check::QpOptions;
using verbs_check::QueuePair;
using verbs_check::Request;
using verbs_check::require;
using verbs_check::Side;
using verbs_check::Style;

/// Larger than what the allocator keeps on its heap: the buffers have pages of their own.
constexpr std::size_t kSize = 300'000;
constexpr std::uint8_t kChildsByte = 0xcc;

const char* own_program = nullptr;

/// Two connected queue pairs of this process.
class Loop {
 public:
  explicit Loop(const Style& style)
      : source_(device_, kSize),
        target_(device_, kSize),
        cq_(device_, 64, style),
        sender_(device_, cq_, cq_, style, QpOptions{}),
        receiver_(device_, cq_, cq_, style, QpOptions{}) {
    int sockets[2] = {-1, -1};
    require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) == 0, "socketpair");
    std::thread other([&] {
      Side side(1, sockets[1]);
      receiver_.connect(side);
    });
    {
      Side side(0, sockets[0]);
      sender_.connect(side);
    }
    other.join();
  }

  void begin() {
    source_.fill(++seed_, 0, kSize);
    target_.clear();
    receiver_.post_receive(2, {target_.sge(0, kSize)});
    Request request;
    request.wr_id = 1;
    request.sges = {source_.sge(0, kSize)};
    sender_.post(request);
  }
  void finish(const std::string& what) {
    cq_.expect_success(what);
    cq_.expect_success(what);
    target_.verify(seed_, 0, kSize, what);
    source_.verify(seed_, 0, kSize, what + ", the source");
  }
  void message(const std::string& what) {
    begin();
    finish(what);
  }

  Device& device() { return device_; }
  Buffer& source() { return source_; }
  Buffer& target() { return target_; }

 private:
  Device device_{""};
  Buffer source_;
  Buffer target_;
  CompletionQueue cq_;
  QueuePair sender_;
  QueuePair receiver_;
  std::uint32_t seed_ = 0;
};

using ChildAction = void (*)(Loop& loop);

/// In the child: leaves without destructors and exit handlers.
void leave_at_once(Loop& /*loop*/) {
  ::_exit(0);
}

/// In the child: leaves as main() does, with the exit handlers of every library.
void leave_through_exit(Loop& /*loop*/) {
  std::exit(0);
}

void become_another_program(Loop& /*loop*/) {
  ::execl("/bin/true", "true", nullptr);
  ::_exit(3);
}

/// In the child: becomes a program that opens the device itself.
void become_another_user(Loop& /*loop*/) {
  ::execl(own_program, own_program, "--single", nullptr);
  ::_exit(3);
}

/// In the child: writes over what the parent sends and receives. Its memory is its own.
void write_buffers(Loop& loop) {
  std::memset(loop.source().data(), kChildsByte, kSize);
  std::memset(loop.target().data(), kChildsByte, kSize);
  const std::uint8_t byte = loop.target().data()[kSize - 1];
  ::_exit(byte == kChildsByte ? 0 : 4);
}

/// In the child: uses the heap and maps memory for a while.
void use_own_memory(Loop& /*loop*/) {
  for (int i = 0; i < 200; ++i) {
    std::vector<std::uint8_t> bytes(50'000, static_cast<std::uint8_t>(i));
    void* page = ::mmap(nullptr, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    std::memset(page, bytes[7], 65536);
    ::munmap(page, 65536);
  }
  ::_exit(0);
}

/// In the child: opens the device once more, and uses it.
void open_device(Loop& /*loop*/) {
  try {
    Loop own({false, false, false, IBV_MTU_1024});
    for (int i = 0; i < 5; ++i) own.message("a message of the child");
  } catch (const std::exception& failure) {
    std::printf("child: %s\n", failure.what());
    std::fflush(stdout);
    ::_exit(5);
  }
  ::_exit(0);
}

/// In the child: makes a child of its own, and ends before it.
void fork_again(Loop& /*loop*/) {
  const pid_t grandchild = ::fork();
  if (grandchild == 0) {
    ::usleep(20'000);
    ::_exit(0);
  }
  ::_exit(grandchild > 0 ? 0 : 6);
}

void await(pid_t child, const std::string& what) {
  int status = 0;
  require(::waitpid(child, &status, 0) == child, what + ": waitpid");
  require(WIFEXITED(status) && WEXITSTATUS(status) == 0,
          what + ": the child ended with wait status " + std::to_string(status));
}

pid_t fork_child(Loop& loop, ChildAction action) {
  std::fflush(stdout);
  const pid_t child = ::fork();
  require(child >= 0, std::string("fork: ") + std::strerror(errno));
  if (child == 0) {
    action(loop);
    ::_exit(9);
  }
  return child;
}

/// Messages before, on their way at, during and after the life of a child.
void with_child(Loop& loop, const std::string& what, ChildAction action) {
  for (int round = 0; round < 3; ++round) {
    loop.message(what + ": before");
    loop.begin();
    const pid_t child = fork_child(loop, action);
    loop.finish(what + ": on its way at the fork");
    for (int i = 0; i < 5; ++i) loop.message(what + ": beside the child");
    await(child, what);
    loop.message(what + ": after the child");
  }
  std::printf("ok %s\n", what.c_str());
}

/// Children come and go from another thread while messages are sent.
void under_forks_of_a_thread(Loop& loop) {
  std::atomic<bool> ends{false};
  std::string failure;
  std::thread forking([&] {
    try {
      for (int i = 0; i < 15; ++i) await(fork_child(loop, leave_at_once), "a child of a thread");
    } catch (const std::exception& caught) {
      failure = caught.what();
    }
    ends = true;
  });
  int messages = 0;
  try {
    while (!ends || messages < 20) {
      loop.message("beside a thread that forks");
      ++messages;
    }
  } catch (...) {
    forking.join();
    throw;
  }
  forking.join();
  require(failure.empty(), failure);
  std::printf("ok a thread that forks (%d messages)\n", messages);
}

/// New objects after children have come and gone.
void objects_after_forks() {
  Loop loop({false, false, false, IBV_MTU_4096});
  for (int i = 0; i < 5; ++i) loop.message("on objects made after forks");
  std::printf("ok objects made after forks\n");
}

struct Options {
  std::string expected_provider;
  bool fork_init = false;
  bool events = false;
  bool single = false;
};

void run(const Options& options) {
  if (options.fork_init) {
    const int error = ibv_fork_init();
    require(error == 0, std::string("ibv_fork_init: ") + std::strerror(error));
  }
  const Style style{false, false, options.events, IBV_MTU_2048};
  Loop loop(style);
  if (options.single) {
    loop.message("a message of an executed program");
    return;
  }
  require(loop.device().provider() == options.expected_provider,
          "bound to provider " + loop.device().provider());
  with_child(loop, "a child that ends", leave_at_once);
  with_child(loop, "a child that exits through main", leave_through_exit);
  with_child(loop, "a child that executes another program", become_another_program);
  with_child(loop, "a child that executes a verbs program", become_another_user);
  with_child(loop, "a child that uses its memory", use_own_memory);
  // After ibv_fork_init() the kernel need not give a child the registered pages.
  if (!options.fork_init) with_child(loop, "a child that writes the buffers", write_buffers);
  with_child(loop, "a child that opens the device", open_device);
  with_child(loop, "a child that forks", fork_again);
  under_forks_of_a_thread(loop);
  objects_after_forks();
}

}  // namespace
}  // namespace softhca::lifetime

int main(int argc, char** argv) {
  softhca::lifetime::own_program = "/proc/self/exe";
  softhca::lifetime::Options options;
  CLI::App app{"A program that forks while it communicates"};
  app.add_option("--provider", options.expected_provider, "Fail unless this provider is bound");
  app.add_flag("--fork-init", options.fork_init, "Call ibv_fork_init() first");
  app.add_flag("--events", options.events, "Sleep on completion events");
  app.add_flag("--single", options.single, "One message, no forks");
  CLI11_PARSE(app, argc, argv);
  try {
    softhca::lifetime::run(options);
  } catch (const std::exception& failure) {
    std::printf("FAILED %s\n", failure.what());
    return 1;
  }
  return 0;
}
