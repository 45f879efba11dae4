// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/runtime/unique_fd.h"

#include <unistd.h>

namespace softhca::runtime {

void UniqueFd::reset(int fd) {
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

}  // namespace softhca::runtime
