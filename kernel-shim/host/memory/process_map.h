// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <istream>
#include <vector>

#include "emulator/runtime/unique_fd.h"

namespace softhca::shim {

/// One mapping of a process.
struct MapEntry {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t offset = 0;
  std::uint64_t inode = 0;
  bool readable = false;
  bool writable = false;
};

/// What a process has mapped where. Stays with the memory that the process has now, whatever it or
/// its number becomes.
class ProcessMap {
 public:
  explicit ProcessMap(pid_t pid);
  pid_t pid() const { return pid_; }
  bool is_readable() const { return static_cast<bool>(fd_); }

  /// The mapping at `address`, or else the next one. 0; ENOENT: there is none; ESRCH: the memory is
  /// gone; EACCES: the map cannot be read.
  int find(std::uint64_t address, MapEntry& entry) const;
  /// All of them, in order of addresses; none if the memory is gone. 0 or EACCES.
  int read(std::vector<MapEntry>& entries) const;
  /// True if the process and everybody else with this memory has ended.
  bool is_gone() const;

 private:
  int read_text(std::vector<MapEntry>& entries) const;

  pid_t pid_;
  runtime::UniqueFd fd_;
};

/// Reads `maps` (the format of /proc/PID/maps).
std::vector<MapEntry> parse_maps(std::istream& maps);

}  // namespace softhca::shim
