// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/host/memory/process_map.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <sstream>
#include <string>

#include "kernel-shim/protocol/procmap_query.h"

namespace softhca::shim {
namespace {

int query(int fd, std::uint64_t address, MapEntry& entry) {
  ProcmapQuery query;
  query.query_flags = kProcmapCoveringOrNext;
  query.query_address = address;
  if (::ioctl(fd, kProcmapQuery, &query) != 0) return errno;
  entry.begin = query.begin;
  entry.end = query.end;
  entry.offset = query.offset;
  entry.inode = query.inode;
  entry.readable = (query.flags & kProcmapReadable) != 0;
  entry.writable = (query.flags & kProcmapWritable) != 0;
  return 0;
}

}  // namespace

std::vector<MapEntry> parse_maps(std::istream& maps) {
  std::vector<MapEntry> entries;
  std::string line;
  while (std::getline(maps, line)) {
    MapEntry entry;
    char rights[5] = {};
    const int fields = std::sscanf(  // NOLINT(cert-err34-c)
        line.c_str(), "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %*x:%*x %" SCNu64, &entry.begin,
        &entry.end, rights, &entry.offset, &entry.inode);
    if (fields != 5) continue;
    entry.readable = rights[0] == 'r';
    entry.writable = rights[1] == 'w';
    entries.push_back(entry);
  }
  return entries;
}

ProcessMap::ProcessMap(pid_t pid)
    : pid_(pid),
      fd_(::open(("/proc/" + std::to_string(pid) + "/maps").c_str(), O_RDONLY | O_CLOEXEC)) {}

int ProcessMap::read(std::vector<MapEntry>& entries) const {
  if (!fd_) return EACCES;
  // A third of the time that writing and reading text takes.
  MapEntry entry;
  int error = 0;
  while ((error = query(fd_.get(), entry.end, entry)) == 0) entries.push_back(entry);
  if (error == ENOENT || error == ESRCH) return 0;
  entries.clear();
  return read_text(entries);
}

int ProcessMap::read_text(std::vector<MapEntry>& entries) const {
  if (::lseek(fd_.get(), 0, SEEK_SET) != 0) return EACCES;
  std::string text;
  char buffer[16384];
  ssize_t length = 0;
  while ((length = ::read(fd_.get(), buffer, sizeof(buffer))) > 0) {
    text.append(buffer, static_cast<std::size_t>(length));
  }
  // Memory that is gone reads as empty, or as ESRCH.
  if (length < 0 && errno != ESRCH) return EACCES;
  std::istringstream lines(text);
  entries = parse_maps(lines);
  return 0;
}

int ProcessMap::find(std::uint64_t address, MapEntry& entry) const {
  if (!fd_) return EACCES;
  const int error = query(fd_.get(), address, entry);
  if (error != ENOTTY) return error == 0 || error == ENOENT || error == ESRCH ? error : EACCES;
  std::vector<MapEntry> entries;
  if (const int failed = read_text(entries)) return failed;
  if (entries.empty()) return ESRCH;
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [address](const MapEntry& each) { return each.end > address; });
  if (found == entries.end()) return ENOENT;
  entry = *found;
  return 0;
}

bool ProcessMap::is_gone() const {
  MapEntry entry;
  return find(0, entry) == ESRCH;
}

}  // namespace softhca::shim
