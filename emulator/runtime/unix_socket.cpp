// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/runtime/unix_socket.h"

#include <cerrno>
#include <cstddef>
#include <cstring>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

namespace softhca::runtime {
namespace {

/// A socket's address; for a long path it goes through `folder`, which must stay open while it is
/// used.
struct Address {
  sockaddr_un name{};
  socklen_t length = 0;
  UniqueFd folder;
};

Result<Address> address_of(const std::string& path) {
  Address address;
  address.name.sun_family = AF_UNIX;
  std::string name = path;
  if (name.size() >= sizeof(address.name.sun_path)) {
    const auto slash = path.rfind('/');
    if (slash == std::string::npos) return system_error(ENAMETOOLONG, path);
    const std::string folder = path.substr(0, slash + 1);
    address.folder.reset(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!address.folder) return system_error(errno, folder);
    name = "/proc/self/fd/" + std::to_string(address.folder.get()) + path.substr(slash);
    if (name.size() >= sizeof(address.name.sun_path)) return system_error(ENAMETOOLONG, path);
  }
  std::memcpy(address.name.sun_path, name.c_str(), name.size() + 1);
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size() + 1);
  return address;
}

const sockaddr* as_sockaddr(const Address& address) {
  return reinterpret_cast<const sockaddr*>(&address.name);
}

constexpr char kWhatToDo[] = ": remove it, or set SOFTHCA_RUNTIME_DIR to another folder";

/// There is nothing at `path`, or something of this user that a socket may take the place of.
Result<Done> verify_socket_place(const std::string& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return Done{};
    return system_error(errno, path);
  }
  if (S_ISDIR(status.st_mode)) {
    return Error{EISDIR, path + " is a directory, where a socket should be" + kWhatToDo};
  }
  if (status.st_uid != ::geteuid()) {
    return Error{EPERM, path + " belongs to another user" + kWhatToDo};
  }
  return Done{};
}

/// Also bounds connect(), which otherwise waits for ever while the listener's backlog is full.
void set_send_timeout(int socket, int seconds) {
  const timeval time{seconds, 0};
  ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof(time));
}

bool peer_credentials(int socket, ucred& credentials) {
  socklen_t length = sizeof(credentials);
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) == 0;
}

}  // namespace

Result<UniqueFd> listen_unix(const std::string& path, int type, int backlog) {
  auto address = address_of(path);
  if (!address) return address.error();
  if (auto place = verify_socket_place(path); !place) return place.error();
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return system_error(errno, path);
  UniqueFd socket(::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return system_error(errno, "socket");
  // The mode of the file comes from the socket's own inode, so that it is never open to others.
  ::fchmod(socket.get(), 0600);
  if (::bind(socket.get(), as_sockaddr(*address), address->length) != 0) {
    return system_error(errno, path);
  }
  if (::listen(socket.get(), backlog) != 0) return system_error(errno, path);
  return socket;
}

Result<UniqueFd> connect_unix(const std::string& path, int type) {
  auto address = address_of(path);
  if (!address) return address.error();
  UniqueFd socket(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  if (!socket) return system_error(errno, "socket");
  set_send_timeout(socket.get(), 5);
  while (::connect(socket.get(), as_sockaddr(*address), address->length) != 0) {
    if (errno == EINTR) continue;
    const int error = errno == EAGAIN ? ETIMEDOUT : errno;
    // Refused, too, is who knocks at what is no socket.
    if (error == ECONNREFUSED || error == EACCES) {
      if (auto place = verify_socket_place(path); !place) return place.error();
    }
    return system_error(error, path);
  }
  set_send_timeout(socket.get(), 0);
  return socket;
}

pid_t peer_pid(int socket) {
  ucred credentials{};
  return peer_credentials(socket, credentials) ? credentials.pid : -1;
}

bool peer_is_trusted(int socket) {
  ucred credentials{};
  return peer_credentials(socket, credentials) &&
         (credentials.uid == ::geteuid() || credentials.uid == 0);
}

}  // namespace softhca::runtime
