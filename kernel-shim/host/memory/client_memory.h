// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "emulator/runtime/unique_fd.h"
#include "kernel-shim/host/memory/process_map.h"

namespace softhca::shim {

/// The memory of a process that uses a context, reached through the /proc/self/mem descriptor that
/// it gave. The descriptor keeps naming the memory it was opened for, also after fork and in
/// another process.
class ClientMemory {
 public:
  ClientMemory(runtime::UniqueFd mem, pid_t pid)
      : mem_(std::move(mem)), map_(std::make_shared<ProcessMap>(pid)) {}

  /// By the descriptor alone: procfs tells whose memory it names. Empty: it is none of
  /// /proc/PID/mem.
  static std::optional<ClientMemory> identify(runtime::UniqueFd mem);

  /// The descriptor; file offset = virtual address.
  int fd() const { return mem_.get(); }
  pid_t pid() const { return map_->pid(); }
  const std::shared_ptr<const ProcessMap>& map() const { return map_; }

  /// What get_user_pages would say: 0, or EFAULT if a page of [start, start + length) is not
  /// mapped, not readable, or not writable although `write`. EINVAL: the range wraps.
  int check(std::uint64_t start, std::uint64_t length, bool write) const;

 private:
  int probe(std::uint64_t start, std::uint64_t length) const;

  runtime::UniqueFd mem_;
  std::shared_ptr<const ProcessMap> map_;
};

}  // namespace softhca::shim
