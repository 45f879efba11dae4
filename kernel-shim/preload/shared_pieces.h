// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>

#include "kernel-shim/protocol/protocol.h"

namespace softhca::shim::preload {

/// What a request tells of shared pages.
class SharedPieces {
 public:
  void clear() {
    count_ = 0;
    complete_ = true;
    fresh_begin_ = fresh_end_ = 0;
  }
  /// Pages that were asked for are not among them, and cannot be.
  void leave_out() { complete_ = false; }
  bool is_complete() const { return complete_; }
  /// Adds pages in order of addresses. False: too many pieces.
  bool add(const SharedPiece& piece) {
    if (count_ != 0) {
      SharedPiece& last = pieces_[count_ - 1];
      if (last.address + last.length == piece.address &&
          last.offset + last.length == piece.offset) {
        last.length += piece.length;
        return true;
      }
    }
    if (count_ == kMaxPieces) return false;
    pieces_[count_++] = piece;
    return true;
  }
  /// What was there at a time, to come back to when more was added in vain.
  struct Mark {
    std::uint32_t count;
    SharedPiece last;
  };
  Mark mark() const { return {count_, count_ != 0 ? pieces_[count_ - 1] : SharedPiece{}}; }
  void return_to(const Mark& mark) {
    count_ = mark.count;
    if (count_ != 0) pieces_[count_ - 1] = mark.last;
  }
  /// Pages that have just been mapped, and whose page tables are still empty; the latest.
  void set_fresh(std::uint64_t begin, std::uint64_t end) {
    fresh_begin_ = begin;
    fresh_end_ = end;
  }
  std::uint64_t fresh_begin() const { return fresh_begin_; }
  std::uint64_t fresh_end() const { return fresh_end_; }
  const SharedPiece* data() const { return pieces_; }
  std::uint32_t count() const { return count_; }

 private:
  SharedPiece pieces_[kMaxPieces];
  std::uint32_t count_ = 0;
  bool complete_ = true;
  std::uint64_t fresh_begin_ = 0;
  std::uint64_t fresh_end_ = 0;
};

}  // namespace softhca::shim::preload
