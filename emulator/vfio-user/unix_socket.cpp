// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/vfio-user/unix_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

namespace softhca::vfio_user {
namespace {

constexpr int kBacklog = 16;

Error system_error(const std::string& what) {
  const int code = errno;
  return {ErrorKind::system, code, what + ": " + std::strerror(code)};
}

/// A socket address for a path of any length, and the directory that it may refer to.
struct Address {
  sockaddr_un value{};
  FileDescriptor directory;
};

Result<Address> make_address(const std::string& path) {
  Address address;
  address.value.sun_family = AF_UNIX;
  std::string shortened = path;
  if (path.size() >= sizeof address.value.sun_path) {
    const std::size_t slash = path.rfind('/');
    const std::string parent = slash == std::string::npos ? "." : path.substr(0, slash + 1);
    address.directory.reset(::open(parent.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!address.directory) return system_error(parent);
    shortened = "/proc/self/fd/" + std::to_string(address.directory.get()) + "/" +
                path.substr(slash == std::string::npos ? 0 : slash + 1);
  }
  if (shortened.empty() || shortened.size() >= sizeof address.value.sun_path) {
    return Error{ErrorKind::argument, ENAMETOOLONG, path + ": no socket can have this name"};
  }
  std::memcpy(address.value.sun_path, shortened.c_str(), shortened.size() + 1);
  return address;
}

int connect_to(int socket, const Address& address) {
  int result = 0;
  do {
    result =
        ::connect(socket, reinterpret_cast<const sockaddr*>(&address.value), sizeof address.value);
  } while (result != 0 && errno == EINTR);
  return result;
}

/// What to say of a place that a socket cannot take.
const char* in_use(const Address& address) {
  struct stat status {};
  if (::lstat(address.value.sun_path, &status) == 0 && S_ISDIR(status.st_mode)) {
    return " is a directory, where a socket should be: remove it";
  }
  return ": in use";
}

/// Removes a socket file whose listener is gone. False if somebody listens or it cannot be removed.
bool remove_stale(const Address& address) {
  struct stat status {};
  if (::lstat(address.value.sun_path, &status) != 0 || !S_ISSOCK(status.st_mode)) return false;
  const FileDescriptor probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe || connect_to(probe.get(), address) == 0 || errno != ECONNREFUSED) return false;
  return ::unlink(address.value.sun_path) == 0;
}

}  // namespace

Result<FileDescriptor> listen_unix(const std::string& path) {
  auto address = make_address(path);
  if (!address) return address.error();
  FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return system_error("socket");
  // The mode of the socket object becomes the mode of the file: no moment in which others could
  // connect.
  if (::fchmod(socket.get(), 0600) != 0) return system_error(path);
  const auto bind_it = [&] {
    return ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address->value),
                  sizeof address->value);
  };
  if (bind_it() != 0) {
    if (errno != EADDRINUSE) return system_error(path);
    if (!remove_stale(*address) || bind_it() != 0) {
      return Error{ErrorKind::system, EADDRINUSE, path + in_use(*address)};
    }
  }
  if (::listen(socket.get(), kBacklog) != 0) return system_error(path);
  return socket;
}

Result<FileDescriptor> connect_unix(const std::string& path) {
  auto address = make_address(path);
  if (!address) return address.error();
  FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) return system_error("socket");
  if (connect_to(socket.get(), *address) != 0) return system_error(path);
  return socket;
}

}  // namespace softhca::vfio_user
