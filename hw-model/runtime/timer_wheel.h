// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "hw-model/runtime/clock.h"

namespace softhca {

/// Timers of objects that live elsewhere, each with a TimerWheel<T>::Entry: started, stopped and
/// ended in constant time however many there are, and without memory. Deadlines are kept to the
/// nanosecond; only the order among those that end in one expire() may differ from theirs.
///
/// Time is counted in ticks of 2^kTickBits ns. An entry is on the level of the highest digit (of
/// kDigitBits bits) in which its tick differs from that of the wheel, in the slot of that digit: so
/// all of a level end before those of the next one, and a slot before the next one. When the wheel
/// comes to a slot above the lowest level, its entries go to lower levels.
template <typename T>
class TimerWheel {
  static constexpr unsigned kTickBits = 10;
  static constexpr unsigned kDigitBits = 6;
  static constexpr unsigned kSlots = 1U << kDigitBits;
  static constexpr unsigned kLevels = (64 - kTickBits + kDigitBits - 1) / kDigitBits;

  struct Link {
    Link* next = nullptr;
    Link* previous = nullptr;
  };

 public:
  /// Part of its owner, and not moved while it runs. Its owner stops it before it goes away.
  class Entry : Link {
   public:
    explicit Entry(T& owner) : owner_(owner) {}
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    /// kNever: it does not run.
    Nanoseconds deadline() const { return deadline_; }

   private:
    friend class TimerWheel;
    T& owner_;
    Nanoseconds deadline_ = kNever;
    std::uint8_t level_ = 0;
    std::uint8_t slot_ = 0;
  };

  TimerWheel() {
    for (Level& level : levels_) {
      for (Link& head : level.heads) empty_out(head);
    }
  }
  TimerWheel(const TimerWheel&) = delete;
  TimerWheel& operator=(const TimerWheel&) = delete;

  bool empty() const { return running_ == 0; }

  /// Starts a timer, or moves one that runs. `deadline`: not kNever; one that is past ends in the
  /// next expire().
  void start(Entry& entry, Nanoseconds deadline) {
    stop(entry);
    entry.deadline_ = deadline;
    put(entry);
    ++running_;
  }
  /// Does nothing to one that does not run.
  void stop(Entry& entry) {
    if (entry.deadline_ == kNever) return;
    unlink(entry);
    entry.deadline_ = kNever;
    --running_;
  }
  /// Stops all, whose owners may be gone already.
  void clear() {
    for (Level& level : levels_) {
      for (; level.occupied != 0; level.occupied &= level.occupied - 1) {
        empty_out(level.heads[static_cast<unsigned>(std::countr_zero(level.occupied))]);
      }
    }
    running_ = 0;
  }

  /// No timer ends before; kNever: none runs. The deadline of the first, or, where that has its
  /// slot in common with more than kLooks, the time when the wheel comes to the slot.
  Nanoseconds earliest() const {
    const unsigned level = lowest();
    if (level == kLevels) return kNever;
    const auto slot = static_cast<unsigned>(std::countr_zero(levels_[level].occupied));
    const Link& head = levels_[level].heads[slot];
    Nanoseconds earliest = kNever;
    unsigned looks = 0;
    for (const Link* link = head.next; link != &head; link = link->next) {
      if (++looks > kLooks) return std::max(start_of(level, slot) << kTickBits, now_ + 1);
      earliest = std::min(earliest, static_cast<const Entry*>(link)->deadline_);
    }
    return earliest;
  }
  static constexpr unsigned kLooks = 64;

  /// Stops every timer whose deadline has come and calls `ended(owner)`, which may start and stop
  /// any; those that it starts and that are past already end in the next call. `now` never goes
  /// back.
  template <typename Ended>
  void expire(Nanoseconds now, Ended&& ended) {
    const std::uint64_t until = now >> kTickBits;
    now_ = now;
    Link due;
    empty_out(due);
    while (running_ != 0) {
      const unsigned level = lowest();
      if (level == kLevels) break;
      const auto slot = static_cast<unsigned>(std::countr_zero(levels_[level].occupied));
      const std::uint64_t tick = start_of(level, slot);
      if (tick > until) break;
      tick_ = std::max(tick_, tick);
      if (level == 0) {
        take_due(slot, now, due);
        if (tick == until) break;
      } else {
        spread(level, slot);
      }
    }
    tick_ = std::max(tick_, until);
    while (due.next != &due) {
      auto* entry = static_cast<Entry*>(due.next);
      stop(*entry);
      ended(entry->owner_);
    }
  }

 private:
  /// Of entries that are due, and in no slot.
  static constexpr std::uint8_t kNoLevel = kLevels;

  struct Level {
    std::uint64_t occupied = 0;  ///< A bit for each slot with entries.
    std::array<Link, kSlots> heads;
  };

  static void empty_out(Link& head) { head.next = head.previous = &head; }
  static void append(Link& head, Link& link) {
    link.previous = head.previous;
    link.next = &head;
    head.previous->next = &link;
    head.previous = &link;
  }

  unsigned lowest() const {
    for (unsigned level = 0; level < kLevels; ++level) {
      if (levels_[level].occupied != 0) return level;
    }
    return kLevels;
  }
  /// First tick of a slot: its digit, after those of the wheel's tick that are above it.
  std::uint64_t start_of(unsigned level, unsigned slot) const {
    const unsigned shift = level * kDigitBits;
    const std::uint64_t above = tick_ >> shift >> kDigitBits << kDigitBits;
    return (above | slot) << shift;
  }

  void put(Entry& entry) {
    const std::uint64_t tick = std::max(entry.deadline_ >> kTickBits, tick_);
    const std::uint64_t differs = tick ^ tick_;
    const unsigned level =
        differs == 0 ? 0 : static_cast<unsigned>(std::bit_width(differs) - 1) / kDigitBits;
    const auto slot = static_cast<unsigned>(tick >> level * kDigitBits) % kSlots;
    entry.level_ = static_cast<std::uint8_t>(level);
    entry.slot_ = static_cast<std::uint8_t>(slot);
    append(levels_[level].heads[slot], entry);
    levels_[level].occupied |= std::uint64_t{1} << slot;
  }
  void unlink(Entry& entry) {
    entry.next->previous = entry.previous;
    entry.previous->next = entry.next;
    if (entry.level_ == kNoLevel) return;
    Level& level = levels_[entry.level_];
    const Link& head = level.heads[entry.slot_];
    if (head.next == &head) level.occupied &= ~(std::uint64_t{1} << entry.slot_);
  }
  /// The wheel has come to this slot: its entries are nearer than they were.
  void spread(unsigned level, unsigned slot) {
    Link& head = levels_[level].heads[slot];
    while (head.next != &head) {
      auto& entry = static_cast<Entry&>(*head.next);
      unlink(entry);
      put(entry);
    }
  }
  void take_due(unsigned slot, Nanoseconds now, Link& due) {
    Link& head = levels_[0].heads[slot];
    for (Link* link = head.next; link != &head;) {
      auto& entry = static_cast<Entry&>(*link);
      link = link->next;
      if (entry.deadline_ > now) continue;
      unlink(entry);
      entry.level_ = kNoLevel;
      append(due, entry);
    }
  }

  std::array<Level, kLevels> levels_;
  std::uint64_t tick_ = 0;
  Nanoseconds now_ = 0;  ///< Of the last expire().
  std::uint64_t running_ = 0;
};

}  // namespace softhca
