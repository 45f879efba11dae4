// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/host/memory/shared_file.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

namespace softhca::shim {
namespace {

/// So much may lie in a file that nobody has any more.
constexpr std::uint64_t kTolerated = 64ULL << 20;
/// A process makes one; it may have called exec(), and its number may be another's by now.
constexpr std::ptrdiff_t kMostFiles = 8;
/// A process whose pages are in more pieces than that keeps them until it ends.
constexpr std::size_t kMostIntervals = 1 << 16;

}  // namespace

void SharedFile::appear(std::span<const SharedPiece> pieces) {
  for (const SharedPiece& piece : pieces) {
    present_.add(piece.offset, piece.offset + piece.length);
  }
  if (next_sweep_ == 0) next_sweep_ = kTolerated;
  if (unpinned_bytes() >= next_sweep_) sweep();
  if (present_.count() > kMostIntervals) present_.clear();
}

void SharedFile::sweep() {
  unmapped_bytes_ = 0;
  std::vector<MapEntry> entries;
  if (map_->read(entries) != 0) return;
  IntervalSet unused = present_;
  for (const MapEntry& entry : entries) {
    if (entry.inode != inode_) continue;
    unused.remove(entry.offset, entry.offset + (entry.end - entry.begin));
  }
  for (const auto& [begin, end] : pinned_) unused.remove(begin, end);
  for (const auto& [begin, end] : unused) {
    idle_regions_.drop(begin, end);
    ::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(begin),
                static_cast<off_t>(end - begin));
    present_.remove(begin, end);
  }
  const std::uint64_t left = unpinned_bytes();
  next_sweep_ = left + std::max(kTolerated, left / 4);
}

bool SharedFile::is_mapped(const SharedPiece& piece) const {
  MapEntry entry;
  const int error = map_->find(piece.address, entry);
  if (error == EACCES) return true;
  return error == 0 && entry.inode == inode_ && entry.begin <= piece.address &&
         piece.address + piece.length <= entry.end &&
         entry.offset + (piece.address - entry.begin) == piece.offset;
}

void SharedFile::unpin(const SharedPiece& piece) {
  pinned_.erase(pinned_.find({piece.offset, piece.offset + piece.length}));
  pinned_bytes_ -= piece.length;
  if (is_mapped(piece)) return;
  unmapped_bytes_ += piece.length;
  // A sweep reads the whole map: one for each of many regions would take long.
  if (unmapped_bytes_ >= std::min(pinned_bytes_ / 8, kTolerated)) sweep();
}

SharedFile::Pin::Pin(std::shared_ptr<SharedFile> file, const SharedPiece& piece)
    : file_(std::move(file)), piece_(piece) {
  file_->pinned_.emplace(piece.offset, piece.offset + piece.length);
  file_->pinned_bytes_ += piece.length;
}

SharedFile::Pin::~Pin() {
  if (file_ != nullptr) file_->unpin(piece_);
}

std::uint64_t SharedFile::unpinned_bytes() const {
  return present_.total() - std::min(present_.total(), pinned_bytes_);
}

int SharedFiles::open(int fd, const std::shared_ptr<const ProcessMap>& map,
                      std::shared_ptr<SharedFile>& file) {
  struct stat status {};
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) return EINVAL;
  const Id id{status.st_dev, status.st_ino};
  if (const auto found = files_.find(id); found != files_.end()) {
    file = found->second;
    return 0;
  }
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return EINVAL;
  runtime::UniqueFd own(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!own) return EMFILE;
  purge();
  const auto of_process = std::count_if(files_.begin(), files_.end(), [&map](const auto& entry) {
    return entry.second->owner() == map->pid();
  });
  if (of_process >= kMostFiles) return EMFILE;
  file = std::make_shared<SharedFile>(std::move(own), status.st_ino, map);
  files_[id] = file;
  return 0;
}

void SharedFiles::purge() {
  // Of a process whose map cannot be read it is not seen when it ends.
  std::erase_if(files_, [](const auto& entry) {
    const auto& file = entry.second;
    return file->is_gone() || (!file->is_watched() && file.use_count() == 1);
  });
}

void SharedFiles::drop_idle_regions() {
  for (const auto& [id, file] : files_) file->idle_regions().drop(0, ~0ULL);
}

void SharedFiles::sweep(pid_t owner) {
  for (const auto& [id, file] : files_) {
    if (file->owner() == owner) file->sweep();
  }
}

}  // namespace softhca::shim
