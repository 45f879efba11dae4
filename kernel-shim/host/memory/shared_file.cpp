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
/// Pieces that are looked at by tidy(), a system call each.
constexpr std::size_t kMostLeftMapped = 16;
/// A sweep takes as long as the pages of so many bytes cost when they come new, and some more for
/// every mapping that it looks at.
constexpr std::uint64_t kSweepCost = 1ULL << 19;
constexpr std::uint64_t kMappingCost = 4096;
/// What a process gives back itself: as much as may be in a cache, and in few pieces.
constexpr std::uint64_t kMostCached = 4ULL << 20;
constexpr std::size_t kMostRanges = 16;

std::uint64_t total_of(std::span<const FileRange> ranges) {
  std::uint64_t total = 0;
  for (const FileRange& range : ranges) total += range.length;
  return total;
}

}  // namespace

void SharedFile::appear(std::span<const SharedPiece> pieces) {
  const std::uint64_t before = present_.total();
  for (const SharedPiece& piece : pieces) {
    present_.add(piece.offset, piece.offset + piece.length);
  }
  has_grown_ = has_grown_ || present_.total() != before;
  if (next_sweep_ == 0) next_sweep_ = kTolerated;
  if (unpinned_bytes() >= next_sweep_) sweep();
  if (present_.count() > kMostIntervals) present_.clear();
}

/// What neither the process nor the device has.
std::vector<FileRange> SharedFile::find_unused() {
  unmapped_bytes_ = 0;
  std::vector<MapEntry> entries;
  std::vector<FileRange> found;
  if (map_->read(entries) != 0) return found;
  worth_a_sweep_ = entries.size() * kMappingCost;
  IntervalSet unused = present_;
  for (const MapEntry& entry : entries) {
    if (entry.inode != inode_) continue;
    unused.remove(entry.offset, entry.offset + (entry.end - entry.begin));
  }
  for (const auto& [begin, end] : pinned_) unused.remove(begin, end);
  for (const auto& [begin, end] : unused) {
    idle_regions_.drop(begin, end);
    present_.remove(begin, end);
    found.push_back({begin, end - begin});
  }
  const std::uint64_t left = unpinned_bytes();
  next_sweep_ = left + std::max(kTolerated, left / 4);
  return found;
}

void SharedFile::give_back(std::span<const FileRange> ranges) {
  for (const FileRange& range : ranges) {
    ::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                static_cast<off_t>(range.offset), static_cast<off_t>(range.length));
  }
}

void SharedFile::sweep() {
  give_back(std::exchange(left_to_process_, {}));
  unused_.clear();
  give_back(find_unused());
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
  if (is_mapped(piece)) {
    remember_mapped(piece);
    return;
  }
  unmapped_bytes_ += piece.length;
  // A sweep reads the whole map: one for each of many regions would take long.
  if (unmapped_bytes_ < std::min(pinned_bytes_ / 8, kTolerated)) return;
  if (leaves_unused_) {
    collect();
  } else {
    sweep();
  }
}

void SharedFile::remember_mapped(const SharedPiece& piece) {
  std::erase_if(left_mapped_, [&piece](const auto& each) {
    return each.offset == piece.offset && each.length <= piece.length;
  });
  if (left_mapped_.size() == kMostLeftMapped) left_mapped_.pop_front();
  left_mapped_.push_back(piece);
}

bool SharedFile::is_pinned(const SharedPiece& piece) const {
  return pinned_.contains({piece.offset, piece.offset + piece.length});
}

void SharedFile::tidy() {
  if (!std::exchange(has_grown_, false)) return;
  std::erase_if(left_mapped_, [this](const auto& piece) {
    // The end of its pin brings it back.
    if (is_pinned(piece)) return true;
    if (is_mapped(piece)) return false;
    unmapped_bytes_ += piece.length;
    return true;
  });
  if (unmapped_bytes_ >= std::max(worth_a_sweep_, kSweepCost)) collect();
}

/// What is unused is left to the process, unless it is much.
void SharedFile::collect() {
  give_back(std::exchange(left_to_process_, {}));
  std::vector<FileRange> found = find_unused();
  if (found.size() > kMostRanges || total_of(found) > kMostCached) {
    give_back(found);
    return;
  }
  unused_ = found;
  left_to_process_ = std::move(found);
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

void SharedFiles::add_unused(pid_t owner, Reply& reply) {
  for (const auto& [id, file] : files_) {
    if (file->owner() != owner) continue;
    const std::vector<FileRange> ranges = file->take_unused();
    if (!ranges.empty()) reply.unused_pages(file->inode(), ranges);
  }
}

void SharedFiles::tidy() {
  for (const auto& [id, file] : files_) file->tidy();
}

void SharedFiles::leave_unused(bool leave) {
  for (const auto& [id, file] : files_) file->leave_unused(leave);
}

void SharedFiles::sweep(pid_t owner) {
  for (const auto& [id, file] : files_) {
    if (file->owner() == owner) file->sweep();
  }
}

}  // namespace softhca::shim
