// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Baseline: ping-pong over TCP on the loopback interface between two processes that poll without
// blocking, or with `blocking` sleep until data comes.
//   tcp_pingpong SIZE [ITERATIONS [blocking]]      prints one line: median half round trip in
//   microseconds
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

void pin_to(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  sched_setaffinity(0, sizeof set,
                    &set);  // best effort: one core is enough to be right, not to be fast
}

int receive_flags = MSG_DONTWAIT;

bool send_all(int fd, const char* data, std::size_t size) {
  while (size > 0) {
    const ssize_t n = send(fd, data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0) {
      data += n;
      size -= static_cast<std::size_t>(n);
    } else if (errno != EAGAIN) {
      return false;
    }
  }
  return true;
}

bool receive_all(int fd, char* data, std::size_t size) {
  while (size > 0) {
    const ssize_t n = recv(fd, data, size, receive_flags);
    if (n > 0) {
      data += n;
      size -= static_cast<std::size_t>(n);
    } else if (n == 0 || errno != EAGAIN) {
      return false;
    }
  }
  return true;
}

void no_delay(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t size = argc > 1 ? std::strtoull(argv[1], nullptr, 0) : 8;
  const int iterations = argc > 2 ? std::atoi(argv[2]) : 20000;
  if (size == 0 || size > (1U << 24) || iterations < 10) {
    std::fprintf(stderr, "usage: tcp_pingpong SIZE(1..2^24) [ITERATIONS(10..)]\n");
    return 2;
  }
  if (argc > 3 && std::strcmp(argv[3], "blocking") == 0) receive_flags = 0;
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      listen(listener, 1) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    std::perror("tcp_pingpong");
    return 1;
  }
  std::vector<char> buffer(size, 'x');
  const pid_t child = fork();
  if (child == 0) {
    pin_to(1);
    const int fd = accept(listener, nullptr, nullptr);
    no_delay(fd);
    while (receive_all(fd, buffer.data(), size) && send_all(fd, buffer.data(), size)) {
    }
    _exit(0);
  }
  pin_to(0);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), length) != 0) {
    std::perror("tcp_pingpong: connect");
    return 1;
  }
  no_delay(fd);
  std::vector<double> half_round_trips;
  half_round_trips.reserve(static_cast<std::size_t>(iterations));
  for (int i = 0; i < iterations; ++i) {
    const auto start = std::chrono::steady_clock::now();
    if (!send_all(fd, buffer.data(), size) || !receive_all(fd, buffer.data(), size)) return 1;
    half_round_trips.push_back(
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
            .count() /
        2);
  }
  close(fd);
  waitpid(child, nullptr, 0);
  std::nth_element(half_round_trips.begin(), half_round_trips.begin() + iterations / 2,
                   half_round_trips.end());
  std::printf("%.3f\n", half_round_trips[static_cast<std::size_t>(iterations) / 2]);
  return 0;
}
