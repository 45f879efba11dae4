// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/preload/ready_pages.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace softhca::shim::preload {
namespace {

constexpr std::uint64_t kWhole = 4095;

std::uint64_t smaller(std::uint64_t a, std::uint64_t b) {
  return a < b ? a : b;
}

}  // namespace

std::uint64_t ReadyPages::take(std::uint64_t length) {
  if (length < kSmallest || length > kLargest || (length & kWhole) != 0) return FileOffsets::kEnd;
  registered_ = smaller(registered_ + length, kLargest);
  if (length > end_ - begin_) return FileOffsets::kEnd;
  const std::uint64_t offset = begin_;
  begin_ += length;
  return offset;
}

void ReadyPages::given_back(std::uint64_t length) {
  const std::uint64_t again = smaller(length, registered_);
  registered_ -= again;
  // Whole steps may have made it a little more.
  const std::uint64_t ready = smaller(end_ - begin_, kLargest);
  wanted_ = smaller(wanted_ + again, kLargest - ready);
}

/// Goes on to another part of the file at the end of this one.
bool ReadyPages::make_room(int file, FileOffsets& offsets) {
  if (limit_ - end_ >= kStep) return true;
  if (begin_ != end_) {
    ::syscall(SYS_fallocate, file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, begin_,
              end_ - begin_);
  }
  begin_ = end_ = limit_ = 0;
  const std::uint64_t window = offsets.take_window();
  if (window == FileOffsets::kEnd) return false;
  begin_ = end_ = window;
  limit_ = window + FileOffsets::kWindow;
  return true;
}

bool ReadyPages::prepare(int file, FileOffsets& offsets) {
  if (wanted_ == 0) return false;
  if (!make_room(file, offsets) || ::syscall(SYS_fallocate, file, 0, end_, kStep) != 0) {
    wanted_ = 0;
    return false;
  }
  end_ += kStep;
  wanted_ -= smaller(wanted_, kStep);
  return true;
}

}  // namespace softhca::shim::preload
