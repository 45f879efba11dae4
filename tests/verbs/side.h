// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace softhca::verbs_check {

/// A rule that did not hold; the text says which and what was seen.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Throws a Failure unless `condition` holds.
inline void require(bool condition, const std::string& what) {
  if (!condition) throw Failure(what);
}

/// poll() for input. Where the process has no privileges, a registration by one thread ends that of
/// another with EINTR.
bool becomes_readable(int fd, std::chrono::milliseconds timeout);

/// One of the two ends of a check, and its out-of-band connection to the other: a stream socket,
/// between two processes or two threads. Every wait is bounded; an end that fails closes the
/// socket, which fails the other.
class Side {
 public:
  /// Takes ownership of `socket`. `index` 0 is the server.
  Side(int index, int socket) : index_(index), socket_(socket) {}
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;
  ~Side();

  int index() const { return index_; }
  bool is_server() const { return index_ == 0; }

  /// Gives a value to the other end and takes its value.
  template <typename T>
  T exchange(const T& mine) {
    static_assert(std::is_trivially_copyable_v<T>);
    T theirs;
    write(&mine, sizeof(mine));
    read(&theirs, sizeof(theirs));
    return theirs;
  }
  /// Returns when both ends are here.
  void barrier() { exchange(std::uint32_t{0x5afe}); }

 private:
  void write(const void* data, std::size_t size);
  void read(void* data, std::size_t size);

  int index_;
  int socket_;
};

/// Socket of the first client that connects to `port` on the loopback interface.
int accept_peer(std::uint16_t port);
/// Connects to `port` on the loopback interface; waits for the server to come up.
int connect_peer(std::uint16_t port);

}  // namespace softhca::verbs_check
