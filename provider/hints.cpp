// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/hints.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "kernel-shim/protocol/guarded_descriptor.h"
#include "kernel-shim/protocol/protocol.h"
#include "provider/ioctl_command.h"

namespace softhca::provider {

void Hints::open(int command_fd) {
  IoctlCommand<3> command(shim::kObjectSofthca, shim::kMethodGetDoorbellHints);
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  command.out(shim::kAttrHintsOffset, offset);
  command.out(shim::kAttrHintsLength, length);
  const std::size_t wake = command.out_object(shim::kAttrHintsWakeFd);
  if (command.run(command_fd) != 0) return;
  const auto wake_fd = static_cast<int>(command.value(wake));
  if (length < sizeof(DoorbellHints)) {
    ::close(wake_fd);
    return;
  }
  void* map = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, command_fd,
                   static_cast<off_t>(offset));
  if (map == MAP_FAILED) {
    ::close(wake_fd);
    return;
  }
  map_ = static_cast<DoorbellHints*>(map);
  length_ = length;
  if (softhca_guard_descriptor != nullptr) {
    softhca_guard_descriptor(&wake_fd_, wake_fd);
  } else {
    wake_fd_ = wake_fd;
  }
}

void Hints::adopt(DoorbellHints* map, int wake_fd) {
  close();
  map_ = map;
  wake_fd_ = wake_fd;
}

void Hints::close() {
  if (length_ != 0) {
    munmap(map_, length_);
    ::close(softhca_unguard_descriptor != nullptr ? softhca_unguard_descriptor(&wake_fd_)
                                                  : wake_fd_.load());
  }
  map_ = nullptr;
  length_ = 0;
  wake_fd_ = -1;
}

void Hints::wake() {
  const std::uint64_t one = 1;
  const int before = errno;
  // Full is readable, too. Other failures: the application closed the descriptor.
  const ssize_t written = write(wake_fd_.load(std::memory_order_relaxed), &one, sizeof(one));
  if (written < 0 && errno != EAGAIN) map_->wake_failed();
  errno = before;
}

}  // namespace softhca::provider
