// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/preload/command_fd.h"

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include "kernel-shim/preload/exchange.h"
#include "kernel-shim/preload/guarded_fds.h"
#include "kernel-shim/preload/host_tree.h"
#include "kernel-shim/preload/shared_memory.h"

namespace softhca::shim::preload {
namespace {

constexpr char kSocketName[] = "kernel.sock";

/// Inodes of recognised sockets. Lossy: what falls out is recognised again by its peer's name.
constexpr std::size_t kInodes = 256;
std::atomic<std::uint64_t> known_inodes[kInodes];

/// Sockets that open_device() made, and in which process: a child of fork() inherits the table.
/// Lossy, too.
struct Opened {
  std::atomic<std::uint64_t> inode;
  std::atomic<pid_t> pid;
};
Opened opened[kInodes];

/// One bit per descriptor number that was once seen to be a command descriptor.
constexpr unsigned kNumbers = 65536;
std::atomic<std::uint64_t> met[kNumbers / 64];

std::atomic<std::uint64_t> device_number_of_commands;

void remember(int fd, std::uint64_t inode) {
  known_inodes[inode % kInodes].store(inode, std::memory_order_relaxed);
  const auto number = static_cast<unsigned>(fd);
  if (number < kNumbers) {
    met[number / 64].fetch_or(1ULL << number % 64, std::memory_order_relaxed);
  }
}

void remember_opened(std::uint64_t inode) {
  Opened& slot = opened[inode % kInodes];
  slot.pid.store(::getpid(), std::memory_order_relaxed);
  slot.inode.store(inode, std::memory_order_release);
}

/// The descriptor by which `softhca run` keeps the host alive; inherited, and passed on by exec().
GuardedFd lease;

bool peer_is_daemon(int fd) {
  int type = 0;
  socklen_t length = sizeof(type);
  if (::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) != 0 || type != SOCK_SEQPACKET) {
    return false;
  }
  sockaddr_un peer;
  std::memset(&peer, 0, sizeof(peer));
  length = sizeof(peer) - 1;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) != 0) return false;
  if (peer.sun_family != AF_UNIX) return false;
  const std::size_t path_length = ::strnlen(peer.sun_path, sizeof(peer.sun_path) - 1);
  constexpr std::size_t kNameLength = sizeof(kSocketName) - 1;
  if (path_length < kNameLength) return false;
  const char* name = peer.sun_path + path_length - kNameLength;
  return std::strncmp(name, kSocketName, kNameLength) == 0 &&
         (name == peer.sun_path || name[-1] == '/');
}

__attribute__((constructor)) void guard_lease() {
  const char* text = std::getenv("SOFTHCA_LEASE_FD");
  if (text == nullptr || host_folder() == nullptr) return;
  const ErrnoGuard errno_guard;
  char* end = nullptr;
  const long fd = std::strtol(text, &end, 10);
  // A number that a program in between has closed and used again is not ours.
  if (*end == 0 && fd > 2 && fd < 1 << 20 && peer_is_daemon(static_cast<int>(fd))) {
    guard(lease, static_cast<int>(fd), false);
  }
}

/// connect() to the host's kernel.sock; through /proc/self/fd where its path is too long for a
/// socket address. 0 or errno.
int connect_to_daemon(int socket) {
  const char* root = host_folder();
  if (root == nullptr) return ENODEV;
  sockaddr_un address;
  std::memset(&address, 0, sizeof(address));
  address.sun_family = AF_UNIX;
  int folder = -1;
  const std::size_t room = sizeof(address.sun_path);
  if (std::strlen(root) + 1 + sizeof(kSocketName) <= room) {
    std::snprintf(address.sun_path, room, "%s/%s", root, kSocketName);
  } else {
    folder =
        static_cast<int>(::syscall(SYS_openat, AT_FDCWD, root, O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (folder < 0) return errno;
    std::snprintf(address.sun_path, room, "/proc/self/fd/%d/%s", folder, kSocketName);
  }
  int error = 0;
  while (::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    error = errno;
    if (error != EINTR) break;
    error = 0;
  }
  if (folder >= 0) ::syscall(SYS_close, folder);
  return error;
}

/// The first request of a connection. 0 or errno.
int introduce(int socket, int index) {
  const int memory =
      static_cast<int>(::syscall(SYS_openat, AT_FDCWD, "/proc/self/mem", O_RDWR | O_CLOEXEC));
  if (memory < 0) return errno;
  HelloBody body{};
  body.device_index = static_cast<std::uint32_t>(index);
  Request request(RequestType::hello);
  request.add(&body, sizeof(body));
  request.add_fd(memory);
  Reply reply;
  int error = exchange(socket, request, reply);
  ::syscall(SYS_close, memory);
  HelloReply answer{};
  if (error == 0) error = reply.error();
  if (error == 0 && !reply.read(0, &answer, sizeof(answer))) error = EIO;
  if (error != 0) return error;
  device_number_of_commands.store(makedev(answer.rdev_major, answer.rdev_minor),
                                  std::memory_order_relaxed);
  return 0;
}

/// What open() says when the daemon is not there.
int open_error(int error) {
  switch (error) {
    case ECONNREFUSED:
    case ECONNRESET:
    case ENOENT:
    case EPIPE:
      return ENODEV;
    default:
      return error;
  }
}

}  // namespace

int open_device(int index, int flags) {
  const int before = errno;
  const int type = SOCK_SEQPACKET | ((flags & O_CLOEXEC) != 0 ? SOCK_CLOEXEC : 0);
  const int socket = static_cast<int>(::syscall(SYS_socket, AF_UNIX, type, 0));
  if (socket < 0) return -1;
  int error = connect_to_daemon(socket);
  if (error == 0) error = introduce(socket, index);
  struct stat status;
  if (error == 0 && ::syscall(SYS_fstat, socket, &status) != 0) error = errno;
  if (error != 0) {
    ::syscall(SYS_close, socket);
    return fail(open_error(error));
  }
  if ((flags & O_NONBLOCK) != 0) ::fcntl(socket, F_SETFL, O_NONBLOCK | O_RDWR);
  prepare_for_fork();
  remember(socket, status.st_ino);
  remember_opened(status.st_ino);
  errno = before;
  return socket;
}

namespace {

/// A request without a command descriptor, of which the answer does not matter.
void tell_daemon(RequestType type) {
  const ErrnoGuard errno_guard;
  const int socket =
      static_cast<int>(::syscall(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (socket < 0) return;
  Request request(type);
  Reply reply;
  if (connect_to_daemon(socket) == 0) exchange(socket, request, reply);
  ::syscall(SYS_close, socket);
}

}  // namespace

void refresh_tree() {
  tell_daemon(RequestType::refresh);
}

void ask_for_sweep() {
  tell_daemon(RequestType::sweep);
}

bool is_command_socket(int fd, std::uint64_t inode) {
  if (host_folder() == nullptr) return false;
  const ErrnoGuard guard;
  const bool known = known_inodes[inode % kInodes].load(std::memory_order_relaxed) == inode;
  if (!known && !peer_is_daemon(fd)) return false;
  remember(fd, inode);
  return true;
}

bool is_command_fd(int fd) {
  if (host_folder() == nullptr) return false;
  const ErrnoGuard guard;
  struct stat status;
  return ::syscall(SYS_fstat, fd, &status) == 0 && S_ISSOCK(status.st_mode) &&
         is_command_socket(fd, status.st_ino);
}

bool is_known_command_fd(int fd) {
  const auto number = static_cast<unsigned>(fd);
  if (number >= kNumbers) return false;
  std::atomic<std::uint64_t>& word = met[number / 64];
  const std::uint64_t bit = 1ULL << number % 64;
  if ((word.load(std::memory_order_relaxed) & bit) == 0) return false;
  if (is_command_fd(fd)) return true;
  word.fetch_and(~bit, std::memory_order_relaxed);  // The number serves something else now.
  return false;
}

std::uint64_t inode_of(int fd) {
  const ErrnoGuard guard;
  struct stat status;
  return ::syscall(SYS_fstat, fd, &status) == 0 ? status.st_ino : 0;
}

std::uint64_t inode_of_own(int fd) {
  const ErrnoGuard guard;
  struct stat status;
  if (::syscall(SYS_fstat, fd, &status) != 0) return 0;
  const Opened& slot = opened[status.st_ino % kInodes];
  const bool own = slot.inode.load(std::memory_order_acquire) == status.st_ino &&
                   slot.pid.load(std::memory_order_relaxed) == ::getpid();
  return own ? status.st_ino : 0;
}

bool opened_by_this_process(int fd) {
  return inode_of_own(fd) != 0;
}

std::uint64_t command_device_number() {
  std::uint64_t device = device_number_of_commands.load(std::memory_order_relaxed);
  if (device == 0) {  // The descriptor came from another process.
    device = device_number("/dev/infiniband/uverbs0");
    device_number_of_commands.store(device, std::memory_order_relaxed);
  }
  return device;
}

}  // namespace softhca::shim::preload
