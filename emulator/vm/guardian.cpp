// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/vm/guardian.h"

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include "emulator/control/client.h"

namespace softhca::vm {
namespace {

using runtime::Result;
using runtime::UniqueFd;

/// True if `fd` is the guest's lock, which this process must hold until it has cleaned up: a new
/// guest of the same name would lose its HCAs.
bool is_lock(int fd, const struct stat& lock) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 && status.st_dev == lock.st_dev && status.st_ino == lock.st_ino;
}

/// Keeps nothing of its parent but the pipe and the lock: neither terminal nor anybody's pipes.
void leave_parent(int pipe, const std::string& lock_file) {
  ::setsid();
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE}) ::signal(signal, SIG_IGN);
  struct stat lock {};
  ::stat(lock_file.c_str(), &lock);
  constexpr int kLastInherited = 1024;
  for (int fd = 3; fd < kLastInherited; ++fd) {
    if (fd != pipe && !is_lock(fd, lock)) ::close(fd);
  }
  const int null = ::open("/dev/null", O_RDWR);
  for (int fd = 0; fd < 3; ++fd) ::dup2(null, fd);
  [[maybe_unused]] const int moved = ::chdir("/");
}

void detach_hcas(const Options& options) {
  auto client = emulator::ControlClient::connect(options.fabric);
  if (!client) return;  // an emulator that is gone has no devices
  for (unsigned i = 0; i < options.hcas; ++i) {
    [[maybe_unused]] const auto reply =
        client->request(nlohmann::json{{"command", "detach"}, {"host", hca_host(options.name, i)}});
  }
}

/// All but the lock: removing that would let two guests of one name in.
void remove_files(const Options& options) {
  const GuestPaths paths = guest_paths(options.fabric, options.name);
  std::error_code error;
  for (const std::string& file :
       {paths.agent, paths.commands, paths.qmp, paths.seed, paths.log, paths.console}) {
    std::filesystem::remove(file, error);
  }
}

}  // namespace

Result<Guardian> Guardian::start(const Options& options) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return runtime::system_error(errno, "pipe");
  const UniqueFd reading(ends[0]);
  UniqueFd writing(ends[1]);
  const pid_t process = ::fork();
  if (process < 0) return runtime::system_error(errno, "fork");
  if (process > 0) return Guardian(process, std::move(writing));
  leave_parent(reading.get(), guest_paths(options.fabric, options.name).lock);
  char byte = 0;
  while (::read(reading.get(), &byte, 1) < 0 && errno == EINTR) {
  }
  detach_hcas(options);
  remove_files(options);
  ::_exit(0);
}

void Guardian::finish() {
  if (!pipe_) return;
  pipe_.reset();
  while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace softhca::vm
