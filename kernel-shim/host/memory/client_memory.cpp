// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/host/memory/client_memory.h"

#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <string>
#include <string_view>

namespace softhca::shim {

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
  for (std::uint64_t next = start; next < start + length;) {
    MapEntry entry;
    const int error = map_->find(next, entry);
    if (error == ESRCH || error == EACCES) return probe(start, length);
    if (error != 0 || entry.begin > next || entry.end <= next) return EFAULT;
    if (!entry.readable || (write && !entry.writable)) return EFAULT;
    next = entry.end;
  }
  return 0;
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
