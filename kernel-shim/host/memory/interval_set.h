// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>

namespace softhca::shim {

/// A set of numbers, kept as the fewest intervals [begin, end) that hold it.
class IntervalSet {
 public:
  void add(std::uint64_t begin, std::uint64_t end) {
    if (begin >= end) return;
    remove(begin, end);
    total_ += end - begin;
    const auto next = intervals_.lower_bound(begin);
    if (next != intervals_.end() && next->first == end) {
      end = next->second;
      intervals_.erase(next);
    }
    const auto after = intervals_.lower_bound(begin);
    if (after != intervals_.begin() && std::prev(after)->second == begin) {
      std::prev(after)->second = end;
    } else {
      intervals_.emplace_hint(after, begin, end);
    }
  }

  void remove(std::uint64_t begin, std::uint64_t end) {
    if (begin >= end) return;
    auto at = intervals_.upper_bound(begin);
    if (at != intervals_.begin() && std::prev(at)->second > begin) --at;
    while (at != intervals_.end() && at->first < end) {
      const auto [first, last] = *at;
      at = intervals_.erase(at);
      total_ -= std::min(last, end) - std::max(first, begin);
      if (first < begin) intervals_.emplace(first, begin);
      if (last > end) intervals_.emplace(end, last);
    }
  }

  void clear() {
    intervals_.clear();
    total_ = 0;
  }
  /// How many numbers it holds, and in how many intervals.
  std::uint64_t total() const { return total_; }
  std::size_t count() const { return intervals_.size(); }
  auto begin() const { return intervals_.begin(); }
  auto end() const { return intervals_.end(); }

 private:
  std::map<std::uint64_t, std::uint64_t> intervals_;
  std::uint64_t total_ = 0;
};

}  // namespace softhca::shim
