// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/host/memory/client_memory.h"

#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <fstream>
#include <string>
#include <string_view>

namespace softhca::shim {

int check_mapped(std::istream& maps, std::uint64_t start, std::uint64_t length, bool write) {
  std::uint64_t next = start;
  const std::uint64_t end = start + length;
  std::string line;
  while (next < end && std::getline(maps, line)) {
    const char* at = line.data();
    const char* const stop = line.data() + line.size();
    std::uint64_t from = 0;
    std::uint64_t to = 0;
    const auto first = std::from_chars(at, stop, from, 16);
    if (first.ec != std::errc{} || first.ptr == stop || *first.ptr != '-') continue;
    const auto second = std::from_chars(first.ptr + 1, stop, to, 16);
    if (second.ec != std::errc{} || stop - second.ptr < 5) continue;
    if (to <= next) continue;
    if (from > next) return EFAULT;  // A hole: lines are in address order.
    if (second.ptr[1] != 'r' || (write && second.ptr[2] != 'w')) return EFAULT;
    next = to;
  }
  return next >= end ? 0 : EFAULT;
}

std::optional<ClientMemory> ClientMemory::identify(runtime::UniqueFd mem) {
  char target[64];
  const std::string link = "/proc/self/fd/" + std::to_string(mem.get());
  const ssize_t length = ::readlink(link.c_str(), target, sizeof(target));
  if (length <= 0 || static_cast<std::size_t>(length) == sizeof(target)) return std::nullopt;
  const std::string_view path(target, static_cast<std::size_t>(length));
  constexpr std::string_view prefix = "/proc/";
  if (!path.starts_with(prefix)) return std::nullopt;
  pid_t pid = 0;
  const char* const end = path.data() + path.size();
  const auto [rest, error] = std::from_chars(path.data() + prefix.size(), end, pid);
  if (error != std::errc{} || pid <= 0 || std::string_view(rest, end) != "/mem") {
    return std::nullopt;
  }
  return ClientMemory(std::move(mem), pid);
}

int ClientMemory::check(std::uint64_t start, std::uint64_t length, bool write) const {
  if (length == 0) return 0;
  if (start + length < start) return EINVAL;
  // /proc/PID/mem writes also to read-only private pages, as a debugger would; only the map tells.
  std::ifstream maps("/proc/" + std::to_string(pid_) + "/maps");
  if (maps && maps.peek() != std::ifstream::traits_type::eof()) {
    return check_mapped(maps, start, length, write);
  }
  return probe(start, length);
}

/// Without the map (process gone or hidden): its first and last byte must be there.
int ClientMemory::probe(std::uint64_t start, std::uint64_t length) const {
  char byte = 0;
  for (const std::uint64_t address : {start, start + length - 1}) {
    if (::pread(mem_.get(), &byte, 1, static_cast<off_t>(address)) != 1) return EFAULT;
  }
  return 0;
}

}  // namespace softhca::shim
